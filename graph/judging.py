"""The command that judges programs outside of any run: eval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from graph.console import Device, Json, Language, March, Threads, console, output, say, settings_of
from graph.services import evaluator_for
from graph.standings import Judged, judged
from state.program import Program
from state.verdict import (
    UNVERIFIED,
    Crashed,
    Rejected,
    TimedOut,
    Verdict,
    WrongResult,
    in_us,
    partial,
    summary,
    voucher,
)
from tasks.sources import kernelbench
from tasks.submissions import read_programs
from tasks.task import Task, find_task

_REPEATS = 3
_WIDE = 100
"""Columns of a screen on which receipts fit beside the rest."""
_CELL, _NAME, _BESIDE = 14, 20, 36
"""Widths in the table of workloads: of each program's column, of a name at least, of all but the programs together."""


def evaluate(
    task: Annotated[str, typer.Argument(help="A shipped task or a task folder.")],
    files: Annotated[list[Path], typer.Argument(help="Programs, or folders of them.", metavar="FILE...")],
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Measurements of each; default: 1 of one program, 3 of several.")
    ] = None,
    workloads: Annotated[bool, typer.Option("--workloads", help="Also the latency on each workload.")] = False,
    language: Language = None,
    device: Device = "cpu",
    march: March = "native",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Compile, check, time and rank programs.

    Each is timed against the baseline, in turns with the others; nothing is stored.
    """
    settings = settings_of(task, language=language, device=device, march=march, threads=threads)
    found = find_task(task).narrowed(language, settings.device)
    programs = named_programs(files, found)
    times = repeats or (1 if len(programs) == 1 else _REPEATS)
    evaluator = evaluator_for(found, settings)

    def told(turn: int, name: str, verdict: Verdict) -> None:
        if not as_json:
            say(f"{f'[{turn}/{times}] ' if times > 1 else ''}{name}: {summary(verdict)}")

    try:
        names = tuple(workload.name for workload in found.workloads)
        ranked = judged(evaluator, programs, names, times, told)
    finally:
        evaluator.close()
    parts = [*standings_view(ranked, found, times, console.width), *remarks(ranked)]
    if found.origin.startswith(kernelbench.ORIGIN):
        parts.append(fast_shares(ranked))
    if workloads:
        parts += latencies_views(ranked, console.width)
    output([_plain(one, ranked) for one in ranked], Group(*parts), as_json)


def named_programs(files: list[Path], task: Task) -> list[tuple[str, Program]]:
    """All programs under names of their own. Raises TaskError."""
    read = [(path, name, program) for path in files for name, program in read_programs(path, task)]
    names = [name for _, name, _ in read]
    return [(name if names.count(name) == 1 else str(path / name if path.is_dir() else path), program)
            for path, name, program in read]  # fmt: skip


def _reason(verdict: Verdict, workloads: Sequence[str]) -> str:
    """The verdict in a few words, with why a program failed."""
    kind = verdict.kind.replace("_", " ")
    match verdict:
        case WrongResult():
            return f"{kind}: {verdict.reason} on {verdict.workload}"
        case Rejected():
            return f"{kind}: {verdict.reason.replace('_', ' ')}"
        case Crashed():
            return f"{kind}: {verdict.signal.replace('_', ' ')}"
        case TimedOut():
            return f"{kind}: {verdict.stage}, {verdict.limit_s:g} s"
    lacking = partial(verdict, workloads)
    return f"{kind}, {lacking}" if lacking else kind


def _said(one: Judged) -> str:
    drifted = sum(verdict.drifted for verdict in one.passes)
    said = _reason(one.failure or one.verdicts[-1], one.workloads)
    return f"{said}, baseline drifted in {drifted} of {len(one.passes)}" if drifted else said


def _ties(one: Judged, ranked: list[Judged]) -> list[int]:
    """Ranks, from 1, of the others that cannot be told from it."""
    return [rank for rank, other in enumerate(ranked, 1)
            if other is not one and one.comparable and other.comparable and one.ties_with(other)]  # fmt: skip


def standings_view(ranked: list[Judged], task: Task, times: int, width: int) -> list[RenderableType]:
    """The table of programs; on a narrow screen their receipts stand below it."""
    over = f", medians of {times} measurements in turns" if times > 1 else ""
    tied = any(_ties(one, ranked) for one in ranked)
    wide = width >= _WIDE
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", justify="right")
    table.add_column("program", overflow="fold")
    table.add_column("verdict")
    for name in ("J", "us", "correct"):
        table.add_column(name, justify="right", no_wrap=True)
    if tied:
        table.add_column("ties with")
    if wide:
        table.add_column("receipts", no_wrap=True)
    for rank, one in enumerate(ranked, 1):
        right = "?" if one.correct is None else str(one.correct)
        row = [
            str(rank) if one.comparable else "-", escape(one.name), escape(_said(one)),
            f"{one.score:.1f} ±{one.noise:.1%}" if one.passes else "0.0",
            "-" if one.latency_us is None else in_us(one.latency_us), f"{right}/{len(one.workloads)}",
        ]  # fmt: skip
        row += [", ".join(map(str, _ties(one, ranked)))] if tied else []
        table.add_row(*row, *(["\n".join(map(voucher, one.verdicts))] if wide else []))
    title = Text(
        f"{task.name}: J = 100 is the strongest PyTorch formulation{over}; us: mean over the workloads", "italic"
    )
    below = [Text(f"receipts of {one.name}: {' '.join(map(voucher, one.verdicts))}") for one in ranked]
    return [title, table, *([] if wide else below)]


def remarks(ranked: list[Judged]) -> list[RenderableType]:
    """What the table cannot say: ties with the first, and the messages of those that failed."""
    lines: list[RenderableType] = []
    if ranked[0].comparable and (ties := _ties(ranked[0], ranked)):
        others = ", ".join(ranked[rank - 1].name for rank in ties)
        lines.append(Text(f"tie within noise: {ranked[0].name} cannot be told from {others}; --repeats N looks longer"))
    if any(one.passes and not one.comparable for one in ranked):
        lines.append(Text(f"{UNVERIFIED} programs are not ranked: no receipt says how they were measured"))
    if any(one.failure is not None and one.failure.kind == "wrong_result" for one in ranked):
        lines.append(Text("correct: a wrong workload ends the checks; those before it were right"))
    for one in ranked:
        failed = one.failure
        if failed is not None:
            message = "" if failed.kind == "passed" else f"\n{failed.message.strip()}"
            lines.append(Text(f"\n{one.name}: {_reason(failed, one.workloads)}{message}"))
    return lines


def fast_shares(ranked: list[Judged]) -> Text:
    """KernelBench's measure, over the strongest baseline."""
    speedups = [one.score / 100 if one.comparable else None for one in ranked]
    shares = [f"fast_{p:g} {kernelbench.fast_p(speedups, p):.2f}" for p in (0.0, 1.0, 2.0)]
    return Text(f"{', '.join(shares)} over {len(ranked)} program(s), against the strongest baseline")


def latencies_views(ranked: list[Judged], width: int) -> list[RenderableType]:
    """Tables of the programs that are right, as many beside each other as fit."""
    right = [(rank, one) for rank, one in enumerate(ranked, 1) if one.passes]
    abreast = max(1, (width - _BESIDE) // (_CELL + 3))
    room = max(_NAME, width - (_BESIDE - _NAME) - abreast * (_CELL + 3))
    return [_latencies(right[at : at + abreast], room) for at in range(0, len(right), abreast)]


def _latencies(some: list[tuple[int, Judged]], room: int) -> Table:
    """Rows: workloads; columns: the baseline, then programs, each with its gain over the baseline.

    `room` is the widest that a workload's name may be.
    """
    table = Table(title="Latency in us, and the baseline's over it", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("workload", overflow="ellipsis", no_wrap=True, max_width=room)
    table.add_column("baseline", justify="right", no_wrap=True, min_width=8)
    for rank, one in some:
        table.add_column(f"{rank} {escape(one.name)}", justify="right", overflow="ellipsis", no_wrap=True,
                         min_width=_CELL, max_width=_CELL)  # fmt: skip
    for index, workload in enumerate(some[0][1].workloads):
        row = [one.timings[index] for _, one in some]
        cells = [f"{in_us(t.latency_us)} {t.speedup:.2f}x" if one.comparable else in_us(t.latency_us)
                 for t, (_, one) in zip(row, some, strict=True)]  # fmt: skip
        table.add_row(escape(workload), in_us(median(timing.baseline_us for timing in row)), *cells)
    return table


def _plain(one: Judged, ranked: list[Judged]) -> dict[str, Any]:
    telling = one.failure or one.verdicts[-1]
    return {
        "file": one.name,
        "program": one.program.id,
        "language": one.program.language,
        "rank": ranked.index(one) + 1 if one.comparable else None,
        "kind": telling.kind,
        "reason": _said(one),
        "message": None if telling.kind == "passed" else telling.message,
        "score": one.score,
        "noise": one.noise,
        "latency_us": one.latency_us,
        "correct": one.correct,
        "workloads": len(one.workloads),
        "ties": [ranked[rank - 1].name for rank in _ties(one, ranked)],
        "receipt_ids": [voucher(verdict) for verdict in one.verdicts],
        "timings": [timing.model_dump(mode="json") for timing in one.timings],
        "verdicts": [verdict.model_dump(mode="json") for verdict in one.verdicts],
    }
