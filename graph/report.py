"""What a run looks like to a person: its tree, its attempts, its result. Notebooks call this module too."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from graph.running import Runs
from state.edits import Attempt, Event
from state.program import Program
from state.search import Action, Best, LastAttempt, SearchState
from state.settings import Settings
from state.tree import ROOT, SearchTree, TreeNode
from state.verdict import Passed, Receipt, Verdict, summary
from tasks.evaluator import BaselineTiming
from tasks.playbook import LABEL


def label(state: SearchState) -> str | None:
    """What must be said wherever the results of a run without a language model are shown."""
    return LABEL if Settings.model_validate(state["settings"]).needs_label else None


def tree_view(state: SearchState, lines: int | None = None) -> Tree:
    """The search tree: J where an intent was pursued, V where it waits; the way to the best is marked.

    With `lines`, no more than that many: one for each intent, the most telling ones.
    """
    tree = SearchTree.model_validate(state["tree"])
    best = None if state["best"] is None else Best.model_validate(state["best"])
    path = set() if best is None else {best.node, *(node.id for node in tree.ancestors(best.node))}
    pursued = None if state["action"] is None else Action.model_validate(state["action"]).node
    shown = {node.id for node in tree.nodes} if lines is None else _telling(tree, [pursued, *path], lines - 2)
    root = tree[ROOT]
    score = f" [bold]J {root.score:.1f}[/] (seed)" if root.score is not None else ""
    view = Tree(f"[bold]{escape(root.intent.title)}[/]{score}")
    branches = {ROOT: view}
    for node in tree.nodes[1:]:
        if node.id in shown:
            line = _node_line(tree, node, path, pursued, best)
            line.no_wrap = lines is not None
            line.overflow = "ellipsis"
            branches[node.id] = branches[node.parent_id or ROOT].add(line)
    hidden = len(tree.nodes) - len(shown | {ROOT})
    if hidden:
        view.add(Text(f"and {hidden} more", "dim"))
    return view


def _telling(tree: SearchTree, first: list[str | None], count: int) -> set[str]:
    """At most `count` of the nodes, each with its ancestors: these first, then by J, then by V, pruned ones last."""

    def rank(node: TreeNode) -> tuple[bool, bool, float, float]:
        return (node.id not in first, node.status == "pruned", -(node.score or 0.0), -node.priority)

    chosen: set[str] = set()
    for node in sorted(tree.nodes[1:], key=rank):
        lineage = {node.id, *(ancestor.id for ancestor in tree.ancestors(node.id))} - {ROOT}
        if len(chosen | lineage) <= count:
            chosen |= lineage
    return chosen


def _node_line(tree: SearchTree, node: TreeNode, path: set[str], pursued: str | None, best: Best | None) -> Text:
    parts = [f"{node.id} {node.intent.title}  "]
    style = "bold" if node.id in path else ""
    if node.id == pursued:
        parts.append("… being tried")
    elif node.status == "pruned":
        parts.append(f"pruned: {node.evidence}" if node.evidence else "pruned")
        style = "dim strike"
    elif node.status == "open":
        parts.append(f"V {node.priority:.2f}")
        style = "cyan"
    else:
        parts.append("no program passed" if node.score is None else f"J {node.score:.1f}")
        if node.predicted_score is not None:
            parts.append(f" (forecast {node.predicted_score:.0f})")
        parts.append(f" in {node.attempts} {'attempt' if node.attempts == 1 else 'attempts'}")
    if node.author == "person":
        parts.append(" · a person's")
    note = _slower_step(tree, node, path)
    if best is not None and node.id == best.node:
        note = "  ★ best"
    return Text("".join(parts), style=style).append(note, style="bold yellow")


def _slower_step(tree: SearchTree, node: TreeNode, path: set[str]) -> str:
    """A mark for a step on the way to the best that by itself was slower than what it started from."""
    source = tree.source_of(node.id)
    if node.id not in path or node.score is None or source is None or source.score is None:
        return ""
    return "  ↓ slower by itself, unlocked what follows" if node.score < source.score else ""


def attempt_line(state: SearchState) -> str:
    """The latest attempt, in one plain line."""
    last = LastAttempt.model_validate(state["last"])
    tree = SearchTree.model_validate(state["tree"])
    node = tree[last.node]
    budget = Settings.model_validate(state["settings"]).budget
    what = last.message.strip().splitlines()[0] if last.message.strip() else ""
    said = what if last.verdict == "passed" else f"{last.verdict.replace('_', ' ')}: {what}"
    best = state["best"]
    leads = best is not None and best["program"] == last.program and last.improved
    marks = " *new best*" if leads else " (best of its intent)" if last.improved else _not_better(node, last)
    reused = " [verdict reused]" if last.reused else ""
    samples = f" (best of {len(last.samples)}: {', '.join(last.samples)})" if last.samples else ""
    place = f"[{state['evaluations']:>3}/{budget}] {node.id} {node.intent.title} #{node.attempts}"
    return f"{place}: {said}{samples}{reused}{marks}"


def _not_better(node: TreeNode, last: LastAttempt) -> str:
    """Why a higher score was not taken."""
    return " (not beyond the noise)" if node.score is not None and last.score > node.score else ""


def baseline_view(rows: Sequence[BaselineTiming]) -> RenderableType:
    """Latency of every PyTorch formulation on every workload; programs are measured against the strongest."""
    names = list(dict.fromkeys(name for row in rows for name in (*row.latency_us, *row.errors)))
    table = Table("workload")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row.workload, *(_latency(row, name) for name in names))
    return Group("PyTorch baselines in us; programs are measured against the strongest (*)", table)


def _latency(row: BaselineTiming, name: str) -> str:
    if name not in row.latency_us:
        return "-"
    return f"{row.latency_us[name]:.0f}{'*' if name == row.strongest else ''}"


def result_view(state: SearchState, verdict: Verdict | None) -> RenderableType:
    """The end of a run: best program against the baseline, on each workload and on inputs never seen."""
    lines: list[RenderableType] = [tree_view(state)]
    best = None if state["best"] is None else Best.model_validate(state["best"])
    if best is None:
        lines.append("No program passed.")
    else:
        speed = f"{best.score / 100:.2f}x the strongest PyTorch formulation"
        lines.append(Text(f"Best: J = {best.score:.1f} ({speed}), program {best.program}, intent {best.node}", "bold"))
    if isinstance(verdict, Passed):
        lines.append(timing_table(verdict))
    result = state["result"]
    if result is not None and result.get("held_out_verdict"):
        gap = "" if result["gap"] is None else f", {result['gap']:+.1%} against the search's own workloads"
        lines.append(f"On held-out inputs: {result['held_out_verdict']}{gap}")
    lines.append(
        f"{state['evaluations']} evaluations, {state['turns']} world-model turns, {state['attempts']} attempts"
    )
    if state["stop_reason"] and state["status"] == "done":
        lines.append(f"Ended because {state['stop_reason']}.")
    note = label(state)
    return Group(*lines, *([Text(note, "yellow")] if note else []))


def timing_table(verdict: Passed) -> Table:
    """One row per workload."""
    table = Table("workload", "program us", "baseline us", "baseline", "speed-up", "noise")
    for column in table.columns[1:3]:
        column.justify = "right"
    for t in verdict.timings:
        table.add_row(
            t.workload, f"{t.latency_us:.0f}", f"{t.baseline_us:.0f}", t.baseline, f"{t.speedup:.2f}x", f"{t.noise:.1%}"
        )
    return table


def verdict_view(verdict: Verdict, before: Verdict | None = None) -> RenderableType:
    """A verdict with its receipt, or what differs from the receipt before; without one it is called unverified."""
    parts: list[RenderableType] = [Text(summary(verdict), "bold")]
    parts.append(timing_table(verdict) if isinstance(verdict, Passed) else Text(verdict.message))
    parts.append(Text("unverified: no receipt", "red") if verdict.receipt is None else
                 receipt_view(verdict.receipt, None if before is None else before.receipt))  # fmt: skip
    return Group(*parts)


def receipt_view(receipt: Receipt, before: Receipt | None = None) -> Table:
    """The fields of a receipt that differ from the one before; of many seeds the first few."""
    table = Table("receipt", "", show_header=False, title_justify="left",
                  title="Receipt" if before is None else "Receipt, where it differs from the one above")  # fmt: skip
    known = {} if before is None else before.model_dump(mode="json")
    for name, value in receipt.model_dump(mode="json").items():
        if name not in known or known[name] != value:
            table.add_row(name, escape(_plain(value)))
    return table


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    if isinstance(value, list):
        more = f" ... {len(value)} in all (--json has them)" if len(value) > 12 else ""
        return ", ".join(map(str, value[:4] if more else value)) + more
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


def runs_table(rows: Iterable[dict[str, Any]]) -> Table:
    """The list of runs; `short` is as much of an id as one has to type."""
    table = Table("run", "task", "status", "best J", "evaluations", "model calls", "model", "begun (UTC)")
    for row in rows:
        score = "-" if row["best_score"] is None else f"{row['best_score']:.1f}"
        table.add_row(row["short"], row["task"], row["status"], score, f"{row['evaluations']}/{row['budget']}",
                      str(row["model_calls"]), row["model"], row["created"])  # fmt: skip
    return table


def load(database: Path, run: str = "last") -> tuple[SearchState, list[Event]]:
    """A run's state and its event log, for notebooks. Raises UnknownRun or ArchiveError."""
    runs = Runs(database)
    try:
        state = runs.state(runs.find(run))
        return state, runs.archive.events(state["run"], state["branch"])
    finally:
        runs.close()


def curve(events: Iterable[Event]) -> list[dict[str, Any]]:
    """One row per evaluated attempt: evaluation (1, 2, ...), node, score and the best score so far."""
    rows: list[dict[str, Any]] = []
    best = 0.0
    for event in events:
        if isinstance(event, Attempt) and event.verdict not in ("duplicate", "unusable"):
            best = max(best, event.score)
            rows.append({"evaluation": len(rows) + 1, "node": event.node, "score": event.score, "best": best})
    return rows


def scores(state: SearchState) -> list[dict[str, Any]]:
    """One plain row per node, for notebooks: id, title, status, score, forecast, attempts, depth."""
    tree = SearchTree.model_validate(state["tree"])
    return [
        {"id": node.id, "title": node.intent.title, "status": node.status, "score": node.score,
         "forecast": node.predicted_score, "attempts": node.attempts, "depth": tree.depth(node.id)}
        for node in tree.nodes
    ]  # fmt: skip
