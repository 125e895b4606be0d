"""What the evaluator says about a program: one of six verdicts, each with the receipt of how it was reached."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from statistics import median
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Receipt(_Frozen):
    """How a verdict was reached: enough to repeat the measurement and to doubt it."""

    task: str
    task_hash: str
    program_id: str
    inputs: str = ""
    """What has to be known of the inputs, such as that they are synthetic; empty: nothing."""
    evaluator: str
    """Name and version of the evaluator."""
    hardware: str
    """Processor model and logical core count."""
    isa: str
    """Instruction set of the build: the -march value and the vector extensions it turned on."""
    versions: dict[str, str]
    """Compiler, torch, Python, kernel and operating system versions."""
    compiler_flags: tuple[str, ...]
    threads: int
    """OpenMP threads given to the candidate and to the baseline alike."""
    environment: dict[str, str]
    """Variables that change timings: OMP_*, GLIBC_TUNABLES, ONEDNN_*, ATEN_*."""
    seeds: tuple[int, ...] = ()
    """Seeds of the inputs, in the order in which they were used."""
    method: str = ""
    """How time was taken, in one sentence."""
    rounds: int = 0
    """Interleaved timing rounds per workload."""
    isolation: tuple[str, ...] = ()
    """What kept the program's process apart from everything else, in words."""
    resources: str = ""
    """What the compiler reported of each kernel: registers, spills, shared memory."""
    checks: tuple[str, ...] = ()
    """The checks that ran and passed, by name."""
    compile_s: float = 0.0
    evaluate_s: float = 0.0
    """Wall seconds beyond the compiler's own time."""

    @property
    def id(self) -> str:
        """Sixteen hex digits that two receipts share only when they say the same."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]


class WorkloadTiming(_Frozen):
    """One workload's latencies, both taken in the same interleaved rounds."""

    workload: str
    latency_us: float
    baseline_us: float
    baseline: str
    """The PyTorch formulation that was timed (the strongest on this workload)."""
    noise: float
    """Relative standard error of the ratio baseline / candidate."""

    @property
    def speedup(self) -> float:
        """Baseline latency over candidate latency."""
        return self.baseline_us / self.latency_us


class _Verdict(_Frozen):
    receipt: Receipt | None = None
    """None means that nothing vouches for this verdict: shown as "unverified"."""


class Passed(_Verdict):
    """The program is correct on every workload; s = 1."""

    kind: Literal["passed"] = "passed"
    timings: tuple[WorkloadTiming, ...] = Field(min_length=1)
    noise: float
    """Relative standard error of the score."""
    drifted: bool = False
    """The baseline still moved away from its stored latency after all retries."""

    @property
    def score(self) -> float:
        """J = 100 * geometric mean over workloads of baseline latency / candidate latency."""
        return objective(self.timings)


class CompileError(_Verdict):
    """The compiler refused the program."""

    kind: Literal["compile_error"] = "compile_error"
    message: str


class Crashed(_Verdict):
    """The candidate's process died, or ran out of its memory."""

    kind: Literal["crashed"] = "crashed"
    signal: str
    """Signal name (SIGSEGV, SIGILL, ...), "exit", "exception", "device_error" or "out_of_memory"."""
    message: str


class WrongResult(_Verdict):
    """The outputs differ from the reference beyond the tolerance."""

    kind: Literal["wrong_result"] = "wrong_result"
    reason: Literal["mismatch", "nan", "unwritten", "shape", "check"]
    """shape: what the entry point returned has another structure, shape or dtype; check: the task's own says no."""
    workload: str
    message: str


class TimedOut(_Verdict):
    """The compiler or the candidate was stopped at its time limit."""

    kind: Literal["timed_out"] = "timed_out"
    stage: Literal["compile", "run"]
    limit_s: float
    message: str


class Rejected(_Verdict):
    """The program broke the rules of the measurement, whatever it computed."""

    kind: Literal["rejected"] = "rejected"
    reason: Literal[
        "mutated_input",
        "out_of_bounds_write",
        "left_process",
        "clock_mismatch",
        "forged_reply",
        "broken_channel",
        "unfinished_work",
        "busy_after_return",
        "ran_while_stopped",
        "reused_results",
        "impossible_time",
        "slows_baseline",
    ]
    message: str


UNVERIFIED = "unverified"
"""What a verdict without a receipt is called wherever it is shown; it is never called slower or faster."""

_NAMED = 3
"""Workloads that a message names at most."""

Verdict = Annotated[Passed | CompileError | Crashed | WrongResult | TimedOut | Rejected, Field(discriminator="kind")]
VERDICT: TypeAdapter[Verdict] = TypeAdapter(Verdict)
"""Parses a stored verdict; raises pydantic.ValidationError."""


def objective(timings: tuple[WorkloadTiming, ...]) -> float:
    """J in percent of the baseline's speed: 100 is as fast as the baseline, 200 twice as fast."""
    logs = [math.log(timing.speedup) for timing in timings]
    return 100.0 * math.exp(sum(logs) / len(logs))


def score_of(verdict: Verdict) -> float:
    """J(x) = s * 100 * geometric mean speed-up: 0 for anything that did not pass (paper, section 3.1)."""
    return verdict.score if isinstance(verdict, Passed) else 0.0


def partial(verdict: Verdict, workloads: Collection[str]) -> str:
    """What must be said of a pass that was not measured on exactly these workloads; empty for anything else."""
    if not isinstance(verdict, Passed):
        return ""
    measured = [timing.workload for timing in verdict.timings]
    missing = [name for name in workloads if name not in measured]
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        return f"not measured on {', '.join(missing[:_NAMED])}{more}"
    return "" if len(measured) == len(workloads) else "measured on other workloads as well"


def score_on(verdict: Verdict, workloads: Collection[str]) -> float:
    """J where every one of these workloads was checked and timed; 0 otherwise: other means are not comparable."""
    return 0.0 if partial(verdict, workloads) else score_of(verdict)


def voucher(verdict: Verdict) -> str:
    """The id of the verdict's receipt, or "unverified"."""
    return UNVERIFIED if verdict.receipt is None else verdict.receipt.id


def in_us(latency_us: float) -> str:
    """A latency for people, in microseconds: three digits at least."""
    return f"{latency_us:.{0 if latency_us >= 100 else 1 if latency_us >= 10 else 2}f}"


def spread(verdict: Passed) -> str:
    """One line: on how many workloads the program is slower and faster than the baseline, and between which ratios."""
    ratios = sorted(timing.speedup for timing in verdict.timings)
    close = sum(abs(timing.speedup - 1) <= 2 * timing.noise for timing in verdict.timings)
    slower = sum(timing.speedup < 1 - 2 * timing.noise for timing in verdict.timings)
    return (
        f"slower than the baseline on {slower} of {len(ratios)} workloads, within noise of it on {close}, faster on "
        f"{len(ratios) - slower - close}; from {ratios[0]:.2f}x to {ratios[-1]:.2f}x, median {median(ratios):.2f}x"
    )


def summary(verdict: Verdict) -> str:
    """One line for lists and logs."""
    if isinstance(verdict, Passed):
        unsure = ", baseline drifted" if verdict.drifted else ""
        unsure += "" if verdict.receipt else f", {UNVERIFIED}"
        return f"passed, J {verdict.score:.1f} (noise {verdict.noise:.1%}{unsure})"
    label = verdict.kind.replace("_", " ") + ("" if verdict.receipt else f" ({UNVERIFIED})")
    first = verdict.message.strip().splitlines()
    return f"{label}: {first[0]}" if first else label
