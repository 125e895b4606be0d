"""Deterministic stand-ins for what a run pays for. They are injected; nothing is patched."""

from __future__ import annotations

import hashlib
from pathlib import Path

from langchain_core.language_models import BaseChatModel

from nodes.models.playbook import PlaybookModel
from nodes.services import Services
from state.archive import Archive
from state.lease import Lease
from state.program import Program
from state.settings import Settings
from state.verdict import CompileError, Passed, Verdict, WorkloadTiming
from tasks.evaluator import BaselineTiming, EvaluatorUnavailable
from tasks.playbook import load_playbook
from tasks.task import Task, load_task

SCAFFOLD = Path(__file__).parent.parent / "tasks" / "scaffold"


class HashEvaluator:
    """Verdicts that follow from a program's text alone: always the same, in every process."""

    version = "hash-1"
    hardware = "no hardware"

    def __init__(self, task: Task) -> None:
        self.task = task
        self.away = 0
        """Number of evaluations to refuse as unavailable."""
        self.evaluated: list[str] = []

    def baseline(self) -> tuple[BaselineTiming, ...]:
        return tuple(
            BaselineTiming(workload=w.name, latency_us={"eager": 100.0}, strongest="eager") for w in self.task.workloads
        )

    def use_baseline(self, timings: tuple[BaselineTiming, ...]) -> None:
        pass

    def evaluate(self, program: Program) -> Verdict:
        if self.away:
            self.away -= 1
            raise EvaluatorUnavailable("the device is away")
        self.evaluated.append(program.id)
        return self._verdict(program)

    def confirm(self, program: Program) -> Verdict:
        return self._verdict(program)

    def held_out(self, program: Program) -> Verdict:
        return self._verdict(program)

    def close(self) -> None:
        pass

    def _verdict(self, program: Program) -> Verdict:
        number = int(hashlib.sha256(program.source.encode()).hexdigest()[:4], 16)
        if number % 5 == 0:
            return CompileError(message=f"error {number}")
        timings = tuple(
            WorkloadTiming(
                workload=w.name,
                latency_us=50.0 + number % 89,
                baseline_us=100.0,
                baseline="eager",
                noise=0.001,
            )
            for w in self.task.workloads
        )
        return Passed(timings=timings, noise=0.001)


class FakeServices:
    """A factory like the live one, on a temporary database."""

    def __init__(self, database: Path, model: BaseChatModel | None = None) -> None:
        self.database = database
        self.task = load_task(SCAFFOLD)
        self.evaluator = HashEvaluator(self.task)
        self.model = model or PlaybookModel(playbook=load_playbook(self.task.playbook))
        self._made: dict[str, Services] = {}

    def __call__(self, run: str, settings: Settings) -> Services:
        if run not in self._made:
            self._made[run] = Services(
                run=run, settings=settings, task=self.task, archive=Archive(self.database), evaluator=self.evaluator,
                world_model=self.model, coder=self.model, lease=Lease(self.database, run),
            )  # fmt: skip
        return self._made[run]
