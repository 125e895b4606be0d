"""The command that brings the answers of a machine out of reach into a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from graph.console import DB, DONE, FAILED, USAGE, Db, RunId, complain, db_option, existing, say
from graph.searching import go_on
from nodes.services import Services
from state.effects import Purpose
from state.program import Program
from tasks import envelope
from tasks.answers import TIMINGS, Answer, asked, checked
from tasks.envelope import BadFile
from tasks.screening import remember
from tasks.spool import SpoolEvaluator


@dataclass
class Import:
    """What of a folder of answers has come into a run."""

    services: Services
    evaluator: SpoolEvaluator
    new: int = 0
    known: int = 0
    faults: list[str] = field(default_factory=list)
    """What is wrong with the task's own files, as the other machine found it."""
    skipped: list[str] = field(default_factory=list)

    def take(self, folder: Path) -> None:
        """Every answer that can be believed is in the archive, the baseline first: other requests name it."""
        for path in sorted(envelope.listed(folder), key=self._about_program):
            try:
                answer = checked(path, self.services.task, self.evaluator, self.services.archive.program)
            except BadFile as error:
                self.skipped.append(f"{path.name}: {error}")
                continue
            self._store(answer)
            self.faults += answer.faults
            remember(self.evaluator.site.spool, answer.versions)
            waiting = self.evaluator.site.spool / envelope.REQUESTS / path.name
            if answer.complete and not answer.faults and waiting.exists():
                done = self.evaluator.site.spool / envelope.COLLECTED
                done.mkdir(exist_ok=True)
                waiting.replace(done / path.name)

    def _about_program(self, path: Path) -> bool:
        try:
            return asked(path, self.evaluator.site.spool)["program"] is not None
        except BadFile:
            return True

    def _store(self, answer: Answer) -> None:
        archive, run = self.services.archive, self.services.run
        if answer.timings:
            text = TIMINGS.dump_json(answer.timings).decode()
            used: list[str] = []

            def use() -> str:
                used.append(text)
                return text

            kept = archive.baseline(run, use)
            self._count(not used)
            self.evaluator.use_baseline(TIMINGS.validate_json(kept))
        for purpose, (verdict, seconds) in answer.verdicts.items():
            assert answer.program is not None
            for under in self._purposes(answer.program, purpose):
                key = self.services.verdict_key(answer.program.id, under)
                self._count(archive.has_verdict(key))
                archive.keep_verdict(key, verdict, seconds)

    def _purposes(self, program: Program, purpose: Purpose) -> list[Purpose]:
        """An evaluation of the program that the run starts from is looked for under a purpose of its own."""
        seed = self.services.settings.seed_program
        return ["seed"] if purpose == "attempt" and program.source == seed else [purpose]

    def _count(self, known: bool) -> None:
        self.known += known
        self.new += not known


def collect(
    run_id: RunId,
    folder: Annotated[Path, typer.Argument(help="The worker's --out folder, or a copy of it.", metavar="DIR2")],
    resume: Annotated[bool, typer.Option(help="Go on with the run afterwards.")] = True,
    db: Db = DB,
) -> None:
    """Bring in the answers of the machine that serves a run's spool, and go on.

    Partial results count; what came in before is not counted twice.
    """
    with existing(db) as runs:
        found = runs.find(run_id)
        services = runs.services(found)
        short, evaluator = runs.short(found), services.evaluator
        if not isinstance(evaluator, SpoolEvaluator):
            raise typer.Exit(complain(f"run {short} evaluates on this machine; there is nothing to collect", USAGE))
        answers = folder / envelope.ANSWERS if (folder / envelope.ANSWERS).is_dir() else folder
        if not answers.is_dir():
            raise typer.Exit(complain(f"{folder} is no folder", USAGE))
        state = runs.state(found)
        evaluator.use_baseline(TIMINGS.validate_python(state["baseline"]))
        came = Import(services, evaluator)
        came.take(answers)
        for line in came.skipped:
            complain(f"skipped {line}", 0)
        say(f"{came.new} new, {came.known} here before; requests still awaited: {len(evaluator.waiting())}")
        if came.faults:
            told = "\n".join(dict.fromkeys(came.faults))
            raise typer.Exit(complain(f"the other machine could not use the task:\n{told}\nWhen it can, delete those "
                                      "answers there and start the worker again", FAILED))  # fmt: skip
        if not resume:
            say(f"go on with: ksearch resume {short}{db_option(db)}")
            raise typer.Exit(DONE)
        raise typer.Exit(go_on(runs, found, db))
