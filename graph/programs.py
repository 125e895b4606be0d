"""What a program, its verdicts and their receipts look like to a person."""

from __future__ import annotations

import difflib
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from state.program import Program
from state.verdict import UNVERIFIED, Passed, Receipt, Verdict, in_us, spread, summary
from tasks.workloads import FEW

_ENDS = 5
"""Of more than FEW workloads so many are shown from either end, where not all are asked for."""


def timing_table(verdict: Passed, whole: bool = True) -> RenderableType:
    """One row per workload; a speed-up only where a receipt vouches for it.

    Of many workloads, unless `whole`, those with the least and the most gain; a line on all of them below.
    """
    vouched = verdict.receipt is not None
    table = Table("workload", "program us", "baseline us", "baseline", "noise")
    for column in table.columns[1:3]:
        column.justify = "right"
    if vouched:
        table.add_column("speed-up")
    many = len(verdict.timings) > FEW
    shown = verdict.timings
    if many and not whole:
        ranked = sorted(verdict.timings, key=lambda timing: timing.speedup)
        shown = (*ranked[:_ENDS], *ranked[-_ENDS:])
    for index, t in enumerate(shown):
        if index == _ENDS and len(shown) < len(verdict.timings):
            table.add_row(f"... {len(verdict.timings) - len(shown)} more", style="dim")
        row = [escape(t.workload), in_us(t.latency_us), in_us(t.baseline_us), escape(t.baseline), f"{t.noise:.1%}"]
        table.add_row(*row, *([f"{t.speedup:.2f}x"] if vouched else []))
    return Group(table, Text(spread(verdict).capitalize())) if many and vouched else table


def verdict_view(verdict: Verdict) -> RenderableType:
    """A verdict with its receipt; without one it is called unverified."""
    what = timing_table(verdict) if isinstance(verdict, Passed) else Text(verdict.message)
    return Group(Text(summary(verdict), "bold"), what, vouching_view(verdict))


def vouching_view(verdict: Verdict) -> RenderableType:
    """The verdict's receipt, or the word for having none."""
    return Text(f"{UNVERIFIED}: no receipt", "red") if verdict.receipt is None else receipt_view(verdict.receipt)


def receipt_view(receipt: Receipt) -> Table:
    """Every field of a receipt, a line for each item of a mapping."""
    table = Table("receipt", show_header=False, title_justify="left", title=f"Receipt {receipt.id}")
    table.add_column("", overflow="fold")
    for name, value in receipt.model_dump(mode="json").items():
        table.add_row(name, Text(_plain(value), overflow="fold"))
    return table


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key} = {item}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def code_view(program: Program) -> Syntax:
    """The source, highlighted."""
    return Syntax(program.source, program.language, theme="ansi_dark", background_color="default")


def diff_view(program: Program, parent: Program) -> Syntax:
    """The change against the program that it started from, as a unified diff."""
    lines = difflib.unified_diff(
        parent.source.splitlines(), program.source.splitlines(), parent.id, program.id, lineterm=""
    )  # fmt: skip
    return Syntax("\n".join(lines), "diff", theme="ansi_dark", background_color="default")
