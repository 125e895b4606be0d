"""How a program did on its workloads, in words for a model: bounded, however many workloads there are."""

from __future__ import annotations

from collections.abc import Sequence

from state.verdict import Passed, WorkloadTiming, in_us, spread
from tasks.evaluator import BaselineTiming
from tasks.task import Task
from tasks.workloads import FEW, written

_WORST, _BEST = 5, 3
"""Of more than FEW workloads so many are shown from either end."""
_WEAKEST = 3


def timings(verdict: Passed, task: Task) -> str:
    """A line on all workloads, then one for each, the least gain first; of many the two ends, with their dimensions."""
    ranked = _ranked(verdict)
    head = spread(verdict).capitalize()
    if len(ranked) <= FEW:
        return "\n".join([f"{head}. Least gain first:", *map(_line, ranked)])
    made = {load.name: written(load.values) for load in task.workloads}

    def lines(some: Sequence[WorkloadTiming]) -> list[str]:
        return [_line(timing) + (f" ({made[timing.workload]})" if made.get(timing.workload) else "") for timing in some]

    return "\n".join([
        f"{head}. The {_WORST} with the least gain:", *lines(ranked[:_WORST]),
        f"The {_BEST} with the most:", *lines(ranked[-_BEST:]),
    ])  # fmt: skip


def weakest(verdict: Passed) -> str:
    """One line: the workloads with the least gain, worst first."""
    return ", ".join(f"{t.workload} {t.speedup:.2f}x (noise {t.noise:.1%})" for t in _ranked(verdict)[:_WEAKEST])


def baseline_line(rows: Sequence[BaselineTiming]) -> str:
    """The strongest formulation of each workload, in one line; of many workloads how often each is the strongest."""
    if len(rows) <= FEW:
        return "; ".join(f"{row.workload}: {row.strongest} {in_us(row.latency_us[row.strongest])} us" for row in rows)
    names = [row.strongest for row in rows]
    counts = sorted(dict.fromkeys(names), key=lambda name: -names.count(name))
    ranked = sorted(rows, key=lambda row: row.latency_us[row.strongest])
    ends = [f"{in_us(row.latency_us[row.strongest])} us ({row.workload})" for row in (ranked[0], ranked[-1])]
    strongest = ", ".join(f"{name} on {names.count(name)}" for name in counts)
    return f"strongest of {len(rows)} workloads: {strongest}; from {ends[0]} to {ends[1]}"


def _ranked(verdict: Passed) -> list[WorkloadTiming]:
    return sorted(verdict.timings, key=lambda timing: timing.speedup)


def _line(t: WorkloadTiming) -> str:
    return (f"- {t.workload}: {in_us(t.latency_us)} us, baseline ({t.baseline}) {in_us(t.baseline_us)} us, "
            f"{t.speedup:.2f}x, noise {t.noise:.1%}")  # fmt: skip
