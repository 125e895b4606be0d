"""The command grade: a submission judged by upstream's own harness instead of the evaluator."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from graph.console import FAILED, Json, output, say
from tasks.grades import Case, Grade, Mode, Phase
from tasks.sources.licences import say_licence
from tasks.sources.popcorn import case_file, read_problem
from tasks.submissions import text_of
from tasks.task import TaskError
from tasks.upstream import Request, grade

_UNTRUSTED = (
    "Measured by upstream's harness inside the submission's own process: a submission can fake every number here, so "
    "this grade is not trusted and counts nowhere else. For a verdict: ksearch eval {task} {file} --device cuda"
)
_PREFIX = "gpumode:"


def grade_submission(
    task: Annotated[str, typer.Argument(help="gpumode:PATH, PATH being a problem's folder.")],
    file: Annotated[Path, typer.Argument(help="The submission.", metavar="SUBMISSION.py")],
    mode: Annotated[Mode, typer.Option(help="leaderboard runs tests, benchmarks and ranked benchmarks.")] = "test",
    seed: Annotated[int | None, typer.Option(min=0, help="POPCORN_SEED, as in upstream's secret runs.")] = None,
    request: Annotated[
        Path | None, typer.Option(help="Only write a file for: python -m tasks.upstream FILE --mode MODE")
    ] = None,
    as_json: Json = False,
) -> None:
    """Grade a submission exactly as upstream does; the result is not trusted.

    Upstream's harness runs in an enclosure. Nothing is stored.
    """
    asked = request_for(task, text_of(file))
    if request is not None:
        request.write_text(json.dumps(asdict(asked)), encoding="utf-8")
        say(f"wrote {request}; on the other machine: python -m tasks.upstream {request.name} --mode {mode}")
        return
    found = grade(asked, mode, seed)
    output(asdict(found), grade_view(found), as_json)
    if not as_json:
        say(_UNTRUSTED.format(task=task, file=file))
    if not found.passed:
        raise typer.Exit(FAILED)


def request_for(task: str, submission: str) -> Request:
    """What upstream's harness is given for a submission to a problem. Raises TaskError."""
    if not task.startswith(_PREFIX):
        raise TaskError(f"{task}: only problems of GPU Mode have a harness of their own: {_PREFIX}PATH")
    problem = read_problem(Path(task.removeprefix(_PREFIX)).expanduser())
    say_licence(problem.file)
    manifest = problem.manifest
    return Request(
        problem=problem.name,
        files={**problem.texts, problem.submission: submission},
        main=manifest.config.main,
        submission=problem.submission,
        tests=case_file(manifest.tests),
        benchmarks=case_file(manifest.benchmarks),
        test_timeout=manifest.test_timeout,
        benchmark_timeout=manifest.benchmark_timeout,
        ranked_timeout=manifest.ranked_timeout,
        ranking_by=manifest.ranking_by,
    )


def grade_view(found: Grade) -> Group:
    """A table for each run of the harness, then the score."""
    parts: list[Table | Text] = [_phase_table(phase) for phase in found.phases]
    parts += [Text(phase.message, "red") for phase in found.phases if phase.message]
    if found.score_s is not None:
        parts.append(Text(f"Score ({found.ranking_by}): {found.score_s * 1e6:.3f} us, smaller is better", "bold"))
    return Group(*parts)


def _phase_table(phase: Phase) -> Table:
    what = phase.outcome.replace("_", " ")
    table = Table(title=f"{phase.mode}: {what} in {phase.seconds:.1f} s", title_justify="left")
    table.add_column("case", overflow="fold")
    table.add_column("status")
    timed = phase.mode != "test"
    for name in ("mean us", "std us", "best us", "runs") if timed else ():
        table.add_column(name, justify="right")
    table.add_column("message", overflow="fold")
    for case in phase.cases:
        table.add_row(case.spec, case.status, *(_times(case) if timed else ()), Text(case.message))
    return table


def _times(case: Case) -> tuple[str, str, str, str]:
    if case.times_ns is None:
        return "", "", "", ""
    mean, std, best = (
        f"{case.times_ns[name] / 1e3:.3f}" if name in case.times_ns else "" for name in ("mean", "std", "best")
    )
    return mean, std, best, str(case.runs)
