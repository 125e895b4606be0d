"""What upstream's harness reported of a submission, read from its lines "key: value". Pure; standard library only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Mode = Literal["test", "benchmark", "leaderboard"]
Status = Literal["pass", "fail", "missing"]
"""missing: the harness ended before it said anything of the case."""
Outcome = Literal["passed", "failed", "crashed", "timed_out"]
Lines = dict[str, str]

PASSED, REFUSED = 0, 112
"""Exit statuses of a harness that did its work: all is well, or a case failed."""
_STATISTICS = ("mean", "std", "err", "best", "worst")


@dataclass(frozen=True)
class Case:
    """What became of one test or benchmark."""

    spec: str
    """Its line of the case file."""
    status: Status
    message: str = ""
    runs: int = 0
    """Timed calls; 0 where nothing was timed."""
    times_ns: dict[str, float] | None = None
    """mean, std, err, best and worst of the timed calls, in nanoseconds."""


@dataclass(frozen=True)
class Phase:
    """One run of the harness."""

    mode: Mode
    outcome: Outcome
    cases: tuple[Case, ...]
    exit_status: int | None
    """None where it was killed."""
    seconds: float
    message: str = ""
    """What the harness itself said, or the end of what was printed where it did not pass."""


@dataclass(frozen=True)
class Grade:
    """All runs of the harness that a mode asked for, up to the first that did not pass."""

    problem: str
    mode: Mode
    passed: bool
    phases: tuple[Phase, ...]
    ranking_by: str
    score_s: float | None
    """Seconds, as upstream ranks them (smaller is better); None where nothing was timed or a run did not pass."""
    seed: int | None
    """POPCORN_SEED; None: the case file's own seeds."""
    isolation: tuple[str, ...]
    """What of the enclosure was in force."""
    trusted: Literal[False] = False
    """Times were measured inside the submission's own process."""


def lines_of(text: str) -> Lines:
    """Keys and values; a later line replaces an earlier one with its key, as upstream reads them."""
    parts = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, _, value in parts if key or value}


def outcome_of(lines: Lines, exit_status: int | None) -> Outcome:
    """`exit_status` is None where the harness ran into its limit."""
    if exit_status is None:
        return "timed_out"
    if exit_status not in (PASSED, REFUSED) or "check" not in lines:
        return "crashed"
    return "passed" if exit_status == PASSED and lines["check"] == "pass" else "failed"


def tests_of(lines: Lines, specs: list[str]) -> tuple[Case, ...]:
    """The tests in the order of the case file."""
    return tuple(_test(lines, f"test.{index}.", spec) for index, spec in enumerate(specs))


def _test(lines: Lines, prefix: str, spec: str) -> Case:
    said = lines.get(f"{prefix}status")
    status: Status = "missing" if said is None else "pass" if said == "pass" else "fail"
    return Case(spec, status, lines.get(f"{prefix}error") or lines.get(f"{prefix}message", ""))


def benchmarks_of(lines: Lines, specs: list[str]) -> tuple[Case, ...]:
    """The benchmarks in the order of the case file."""
    return tuple(_benchmark(lines, f"benchmark.{index}.", spec) for index, spec in enumerate(specs))


def _benchmark(lines: Lines, prefix: str, spec: str) -> Case:
    message = lines.get(f"{prefix}error") or lines.get(f"{prefix}message", "")
    if lines.get(f"{prefix}status", "pass") != "pass":
        return Case(spec, "fail", message)
    times = {name: _number(lines.get(prefix + name)) for name in _STATISTICS}
    known = {name: value for name, value in times.items() if value is not None}
    if known.get("mean", 0.0) <= 0:
        return Case(spec, "missing", message)
    return Case(spec, "pass", message, int(_number(lines.get(f"{prefix}runs")) or 0), known)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def score_of(cases: tuple[Case, ...], ranking_by: str) -> float | None:
    """Seconds: the geometric or arithmetic mean of the benchmarks' mean times, or the last one's."""
    means = [case.times_ns["mean"] * 1e-9 for case in cases if case.times_ns is not None]
    if not means or len(means) < len(cases):
        return None
    if ranking_by == "last":
        return means[-1]
    if ranking_by == "mean":
        return math.fsum(means) / len(means)
    return math.exp(math.fsum(map(math.log, means)) / len(means))
