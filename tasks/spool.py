"""The evaluator for a machine that cannot be reached: what is asked becomes files that somebody carries there."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from state.effects import Purpose
from state.program import Program
from state.verdict import Verdict
from tasks import envelope
from tasks.envelope import FORMAT, Fields
from tasks.evaluator import BaselineTiming, EvaluatorUnavailable
from tasks.local import LONGER, message, plain, plan, rounds_for
from tasks.screening import Screen
from tasks.task import Device, Task, Workload
from tasks.version import VERSION

PLACE = "the machine that serves the spool"
"""What prompts say of hardware that nobody has named."""


@dataclass(frozen=True)
class Site:
    """The machine at the other end."""

    spool: Path
    hardware: str | None = None
    """What prompts and verdict keys call it; None: not named."""
    device: Device = "cuda"
    march: str = "native"
    threads: int | None = None


class SpoolEvaluator:
    """Writes requests and reaches no verdict itself, but for programs that no compiler could take.

    Answers come into the archive by `ksearch collect`; so whatever is asked here is still to be measured.
    """

    def __init__(self, task: Task, site: Site) -> None:
        self.site = site
        self._task = task
        self._language = task.languages[0]
        self._baseline: dict[str, BaselineTiming] = {}
        self._screen = Screen(task, site.march, site.spool, self.version)

    @property
    def version(self) -> str:
        """Changes whenever equal programs might get other verdicts; without a name for the machine, per spool."""
        unnamed = hashlib.sha256(str(self.site.spool.resolve()).encode()).hexdigest()[:6]
        return f"spool-{self.site.device}-{VERSION}" + ("" if self.site.hardware else f"@{unnamed}")

    @property
    def hardware(self) -> str:
        """What a verdict holds for, as the person named it, with what the compiler was told."""
        parts = [self.site.hardware or PLACE]
        if self.site.threads is not None:
            parts.append(f"{self.site.threads} threads")
        if self._language == "cpp":
            parts.append(f"-march={self.site.march}")
        return ", ".join(parts)

    def baseline(self) -> tuple[BaselineTiming, ...]:
        """Asks for the race. Raises EvaluatorUnavailable."""
        self._ask([self.baseline_request()])
        raise self._waiting()

    def use_baseline(self, timings: tuple[BaselineTiming, ...]) -> None:
        """Later requests name the strongest formulation per workload of these timings."""
        self._baseline.update({timing.workload: timing for timing in timings})

    def prepare(self, programs: Sequence[Program]) -> None:
        """One request for each of these programs that the compilers of this machine have nothing against."""
        self._ask([self.program_request(program) for program in programs if self._screen.verdict(program) is None])

    def evaluate(self, program: Program) -> Verdict:
        """A true compile error at once; otherwise asks for evaluation and confirmation. Raises EvaluatorUnavailable."""
        found = self._screen.verdict(program)
        if found is not None:
            return found
        self._ask([self.program_request(program)])
        raise self._waiting()

    def confirm(self, program: Program) -> Verdict:
        """Asks for evaluation and confirmation. Raises EvaluatorUnavailable."""
        self._ask([self.program_request(program)])
        raise self._waiting()

    def held_out(self, program: Program) -> Verdict:
        """Asks for the held-out measurement. Raises EvaluatorUnavailable."""
        self._ask([self.held_out_request(program)])
        raise self._waiting()

    def close(self) -> None:
        """Nothing runs here."""

    def baseline_request(self) -> Fields:
        """The request for the race of formulations on every workload."""
        names = [workload.name for workload in self._task.workloads]
        return self._request(None, [{"purpose": "baseline", "do": "race", "workloads": names}])

    def program_request(self, program: Program) -> Fields:
        """The request for an ordinary evaluation and, if that is passed, for the confirmation."""
        loads = self._task.workloads
        return self._request(program, [self._step("attempt", loads, 1), self._step("confirm", loads, LONGER)])

    def held_out_request(self, program: Program) -> Fields:
        """The request for a longer evaluation on the held-out workloads."""
        loads = self._task.held_out or self._task.workloads
        return self._request(program, [self._step("held_out", loads, LONGER)])

    def waiting(self) -> list[Path]:
        """The request files of this task in the spool, of whatever run."""
        found = []
        for path in envelope.listed(self.site.spool / envelope.REQUESTS):
            try:
                request = envelope.read_request(path)
            except envelope.BadFile:
                continue
            if request["task_hash"] == self._task.hash:
                found.append(path)
        return found

    def _step(self, purpose: Purpose, workloads: tuple[Workload, ...], longer: int) -> Fields:
        names = [workload.name for workload in workloads]
        rounds = rounds_for(self.site.device)
        return {"purpose": purpose, "do": "evaluate",
                "plan": plan(self.site.device, names, self._baseline, longer, rounds)}  # fmt: skip

    def _request(self, program: Program | None, steps: list[Fields]) -> Fields:
        task = self._task
        files = {name: (task.folder / name).read_text(encoding="utf-8") for name in task.carried}
        return {
            "format": FORMAT,
            "evaluator": VERSION,
            "name": task.name,
            "task_hash": task.hash,
            "files": files,
            "task": {key: value for key, value in plain(task).items() if key not in ("reference", "manifest")},
            "language": self._language,
            "device": self.site.device,
            "march": self.site.march,
            "threads": self.site.threads,
            "program": None if program is None else message(program),
            "steps": steps,
        }

    def _ask(self, requests: list[Fields]) -> None:
        """These requests are files in the spool. Raises EvaluatorUnavailable when they cannot be written."""
        folder = self.site.spool / envelope.REQUESTS
        try:
            for request in requests:
                path = folder / f"{envelope.digest(request)}.json"
                if not path.exists():
                    envelope.write(path, request)
        except OSError as error:
            raise EvaluatorUnavailable(f"{folder}: requests cannot be written there ({error.strerror})") from None

    def _waiting(self) -> EvaluatorUnavailable:
        count = len(self.waiting())
        what = "1 request waits" if count == 1 else f"{count} requests wait"
        return EvaluatorUnavailable(
            f"{what} in {self.site.spool / envelope.REQUESTS}. On the GPU machine: "
            f"python -m tasks.worker --spool {self.site.spool} --out DIR2; then here: ksearch collect RUN DIR2"
        )
