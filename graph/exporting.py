"""The command that writes a run's best program in the form of another project."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from graph import exporting_gpumode
from graph.console import DB, FAILED, USAGE, Db, RunId, complain, existing, say
from graph.report import label
from graph.running import Ended, Runs
from graph.searching import best_verdict
from state.search import Best
from state.settings import Settings
from state.verdict import UNVERIFIED, Passed
from tasks.flashinfer import exported
from tasks.measured import Measured
from tasks.task import find_task

FORMATS: dict[str, Callable[[Measured], dict[str, str]]] = {
    "flashinfer-bench": exported.texts,
    "gpumode": exporting_gpumode.texts,
}
"""What each format writes: texts by relative path. Raises TaskError for a program or a task that has no such form."""


def export(
    run_id: RunId,
    form: Annotated[str, typer.Option("--format", help=f"One of: {', '.join(FORMATS)}.")],
    out: Annotated[Path, typer.Option(help="Folder to write into.")],
    db: Db = DB,
) -> None:
    """Write the best program for another project.

    Only of a run whose best has a receipt. flashinfer-bench: a solution and a trace for each workload, laid out as in
    one of its data sets. gpumode: a submission.py.
    """
    if form not in FORMATS:
        raise typer.Exit(complain(f"--format: {form!r} is none of {', '.join(FORMATS)}", USAGE))
    with existing(db) as opened:
        measured = _measured(opened, opened.find(run_id))
    for name, text in FORMATS[form](measured).items():
        file = out / name
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise typer.Exit(complain(f"--out {out}: {file} cannot be written ({error.strerror})", FAILED)) from None
        say(f"wrote {file}")


def _measured(opened: Runs, run: str) -> Measured:
    """The best program with its confirmation; the command ends here when nothing vouches for it."""
    state, short = opened.state(run), opened.short(run)
    if state.get("best") is None:
        raise typer.Exit(complain(f"run {short} has no program that passed yet", FAILED))
    program = opened.archive.program(Best.model_validate(state["best"]).program)
    verdict = best_verdict(opened, Ended("done", state))
    if not isinstance(verdict, Passed) or verdict.receipt is None:
        why = f"program {program.id} is {UNVERIFIED}: no receipt says how it was measured, so nothing is written"
        raise typer.Exit(complain(why, FAILED))
    task = find_task(Settings.model_validate(state["settings"]).task)
    if task.hash != verdict.receipt.task_hash:
        why = f"task {task.name} is no longer what run {short} was measured on: export would mix the two up"
        raise typer.Exit(complain(why, FAILED))
    when = opened.archive.measured(program.id)
    return Measured(task, program, verdict, verdict.receipt, when, label(state) or "")
