"""What every evaluator does: a task and a program in, a verdict out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from state.program import Program
from state.verdict import Verdict
from tasks.errors import EvaluatorUnavailable as EvaluatorUnavailable  # noqa: PLC0414 - passed on to importers


class BaselineTiming(BaseModel):
    """One workload's PyTorch formulations, timed one after the other on equal inputs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    latency_us: dict[str, float]
    """Median latency of each formulation that ran."""
    strongest: str
    """The fastest formulation: the one that candidates are measured against."""
    errors: dict[str, str] = {}
    """Formulations that could not run here, with the reason."""
    plan_us: dict[str, float] = {}
    """Host time of what a formulation plans before it is timed, where it does: no part of its latency."""


class Evaluator(Protocol):
    """Compiles, checks and times programs. One instance serves one task on one machine."""

    @property
    def version(self) -> str:
        """Name and version; a verdict is reused only under an equal one."""

    @property
    def hardware(self) -> str:
        """The hardware and the instruction set that a verdict holds for; part of a verdict's key."""

    def baseline(self) -> tuple[BaselineTiming, ...]:
        """Latency of every baseline formulation on every workload, in task order.

        Raises EvaluatorUnavailable.
        """

    def use_baseline(self, timings: tuple[BaselineTiming, ...]) -> None:
        """Later evaluations measure against the strongest formulation per workload of these timings."""

    def prepare(self, programs: Sequence[Program]) -> None:
        """These programs are the next to be evaluated: what can be done for all of them at once is done."""

    def evaluate(self, program: Program) -> Verdict:
        """One ordinary evaluation: compile, check every workload, time it against the baseline.

        Raises EvaluatorUnavailable.
        """

    def confirm(self, program: Program) -> Verdict:
        """A second, longer interleaved measurement of a program that passed, on fresh inputs.

        Raises EvaluatorUnavailable.
        """

    def held_out(self, program: Program) -> Verdict:
        """The program measured on workloads and seeds that the search never saw.

        Raises EvaluatorUnavailable.
        """

    def close(self) -> None:
        """Nothing that the evaluator started is running any more."""
