"""Several programs judged side by side: verdicts in turns, medians over them, ranks, and who ties with whom."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median, stdev

from state.program import Program
from state.search import improves
from state.verdict import Passed, Verdict, WorkloadTiming, WrongResult, partial
from tasks.evaluator import Evaluator

Told = Callable[[int, str, Verdict], None]
"""Hears of each verdict: the pass over the programs, from 1, and the program's name."""


@dataclass(frozen=True)
class Judged:
    """A program with its verdicts, one for each repeat; they end with the first that is no pass."""

    name: str
    program: Program
    verdicts: tuple[Verdict, ...]
    workloads: tuple[str, ...]
    """What it had to be right on, in the order in which that is checked."""

    @property
    def failure(self) -> Verdict | None:
        """The verdict that is no pass, or a pass on some of the workloads only; None: it is right."""
        found = (v for v in self.verdicts if not isinstance(v, Passed) or partial(v, self.workloads))
        return next(found, None)

    @cached_property
    def passes(self) -> tuple[Passed, ...]:
        """The repeats of a program that is right; none of one that failed once."""
        return () if self.failure else tuple(verdict for verdict in self.verdicts if isinstance(verdict, Passed))

    @property
    def comparable(self) -> bool:
        """Whether it is right and a receipt vouches for each repeat: nothing else is ranked."""
        return bool(self.passes) and all(verdict.receipt is not None for verdict in self.passes)

    @cached_property
    def score(self) -> float:
        """J: the median over the repeats; 0 when it is not right."""
        return median(verdict.score for verdict in self.passes) if self.passes else 0.0

    @cached_property
    def noise(self) -> float:
        """Relative standard error of J: the repeats' own and the spread between them."""
        count = len(self.passes)
        if not count:
            return 0.0
        own = sum(verdict.noise**2 for verdict in self.passes) / count
        between = stdev(math.log(verdict.score) for verdict in self.passes) ** 2 if count > 1 else 0.0
        return math.sqrt((own + between) / count)

    @cached_property
    def timings(self) -> tuple[WorkloadTiming, ...]:
        """Medians over the repeats, in the order of the workloads; none of a program that failed."""
        found = [[next(t for t in verdict.timings if t.workload == name) for verdict in self.passes]
                 for name in self.workloads]  # fmt: skip
        return tuple(map(_median, found)) if self.passes else ()

    @property
    def latency_us(self) -> float | None:
        """Geometric mean over the workloads; None when it is not right."""
        logs = [math.log(timing.latency_us) for timing in self.timings]
        return math.exp(sum(logs) / len(logs)) if logs else None

    @property
    def correct(self) -> int | None:
        """On how many workloads it was right. A wrong one ends the checks: those that came before it. None: unknown."""
        failed = self.failure
        if failed is None:
            return len(self.workloads)
        if isinstance(failed, WrongResult) and failed.workload in self.workloads:
            return self.workloads.index(failed.workload)
        return 0 if failed.kind == "compile_error" else None

    def ties_with(self, other: Judged) -> bool:
        """Whether the two scores differ by no more than the noise of both."""
        low, high = sorted((self, other), key=lambda judged: judged.score)
        return not improves(high.score, high.noise, (low.score, low.noise), 0.0)


def _median(repeats: list[WorkloadTiming]) -> WorkloadTiming:
    """One workload over the repeats; latency_us is scaled so that the two latencies give the median ratio."""
    ratio = median(timing.speedup for timing in repeats)
    baseline_us = median(timing.baseline_us for timing in repeats)
    own = sum(timing.noise**2 for timing in repeats) / len(repeats)
    between = stdev(math.log(timing.speedup) for timing in repeats) ** 2 if len(repeats) > 1 else 0.0
    noise = math.sqrt((own + between) / len(repeats))
    return repeats[0].model_copy(update={"latency_us": baseline_us / ratio, "baseline_us": baseline_us, "noise": noise})


def judged(
    evaluator: Evaluator, programs: Sequence[tuple[str, Program]], workloads: tuple[str, ...], repeats: int, told: Told
) -> list[Judged]:
    """The programs, ranked. They are measured in turns, so that a slow phase of the machine meets all of them alike.

    One that fails is not measured again. Raises EvaluatorUnavailable.
    """
    evaluator.prepare([program for _, program in programs])
    verdicts: list[list[Verdict]] = [[] for _ in programs]
    for repeat in range(repeats):
        order = range(len(programs)) if repeat % 2 == 0 else reversed(range(len(programs)))
        for index in order:
            name, program = programs[index]
            if all(isinstance(verdict, Passed) for verdict in verdicts[index]):
                verdicts[index].append(evaluator.evaluate(program))
                told(repeat + 1, name, verdicts[index][-1])
    found = [Judged(name, program, tuple(own), workloads)
             for (name, program), own in zip(programs, verdicts, strict=True)]  # fmt: skip
    return sorted(found, key=lambda one: (not one.comparable, -one.score))
