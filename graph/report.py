"""What a run looks like to a person: its tree, its attempts, its result. Notebooks call this module too."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from graph.programs import timing_table
from graph.running import Runs
from nodes.models import operator
from prompts.feedback import baseline_line
from state.archive import Archive
from state.edits import Attempt, Event
from state.search import Action, Best, LastAttempt, SearchState
from state.settings import Settings
from state.tree import ROOT, SearchTree, TreeNode
from state.verdict import UNVERIFIED, Passed, Verdict, in_us
from tasks import playbook
from tasks.evaluator import BaselineTiming
from tasks.workloads import FEW


def label(state: SearchState) -> str | None:
    """What must be said wherever the results of a run without a language model are shown."""
    return label_of(Settings.model_validate(state["settings"]))


def label_of(settings: Settings) -> str | None:
    """What must be said of the results under these settings; None: only language models play a part."""
    said = {"playbook": playbook.LABEL, "operator": operator.LABEL}
    providers = dict.fromkeys(name.partition(":")[0] for name in settings.models)
    return "; ".join(said[provider] for provider in providers if provider in said) or None


Vouch = Callable[[str], str]
"""From a program's id to the id of the receipt behind its score, or "unverified"."""


def tree_view(state: SearchState, vouch: Vouch, lines: int | None = None) -> Tree:
    """The search tree: J where an intent was pursued, V where it waits; the way to the best is marked.

    A score without a receipt is called unverified. With `lines`, no more than that many: one for each intent, the
    most telling ones.
    """
    tree = SearchTree.model_validate(state["tree"])
    best = None if state["best"] is None else Best.model_validate(state["best"])
    path = set() if best is None else {best.node, *(node.id for node in tree.ancestors(best.node))}
    pursued = None if state["action"] is None else Action.model_validate(state["action"]).node
    shown = {node.id for node in tree.nodes} if lines is None else _telling(tree, [pursued, *path], lines - 2)
    root = tree[ROOT]
    unsure = _doubt(root, vouch)
    score = f" [bold]J {root.score:.1f}[/] (seed{unsure})" if root.score is not None else ""
    view = Tree(f"[bold]{escape(root.intent.title)}[/]{score}")
    branches = {ROOT: view}
    for node in tree.nodes[1:]:
        if node.id in shown:
            line = _node_line(node, _note(tree, node, path, best, vouch), pursued, vouch)
            line.stylize("bold" if node.id in path else "", 0, len(line))
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


def _node_line(node: TreeNode, note: str, pursued: str | None, vouch: Vouch) -> Text:
    parts = [f"{node.id} {node.intent.title}  "]
    style = ""
    if node.id == pursued:
        parts.append("… being tried")
    elif node.status == "pruned":
        parts.append(f"pruned: {node.evidence}" if node.evidence else "pruned")
        style = "dim strike"
    elif node.status == "open":
        parts.append(f"V {node.priority:.2f}")
        style = "cyan"
    else:
        parts.append("no program passed" if node.score is None else f"J {node.score:.1f}{_doubt(node, vouch)}")
        if node.predicted_score is not None:
            parts.append(f" (forecast {node.predicted_score:.0f})")
        parts.append(f" in {node.attempts} {'attempt' if node.attempts == 1 else 'attempts'}")
    if node.author == "person":
        parts.append(" · a person's")
    return Text("".join(parts), style=style).append(note, style="bold yellow")


def _doubt(node: TreeNode, vouch: Vouch) -> str:
    """What must be said of a score for which nothing vouches."""
    return f", {UNVERIFIED}" if node.program_id is not None and vouch(node.program_id) == UNVERIFIED else ""


def _note(tree: SearchTree, node: TreeNode, path: set[str], best: Best | None, vouch: Vouch) -> str:
    """A mark for the best, and for a step on the way to it that by itself was slower than what it started from."""
    if best is not None and node.id == best.node:
        return "  ★ best"
    source = tree.source_of(node.id)
    if node.id not in path or node.score is None or source is None or source.score is None:
        return ""
    if _doubt(node, vouch) or _doubt(source, vouch):
        return ""
    return "  ↓ slower by itself, unlocked what follows" if node.score < source.score else ""


def attempt_line(state: SearchState, vouch: Vouch) -> str:
    """The latest attempt, in one plain line; one without a receipt is unverified, and no more than that."""
    last = LastAttempt.model_validate(state["last"])
    tree = SearchTree.model_validate(state["tree"])
    node = tree[last.node]
    budget = Settings.model_validate(state["settings"]).budget
    what = last.message.strip().splitlines()[0] if last.message.strip() else ""
    said = what if last.verdict == "passed" else f"{last.verdict.replace('_', ' ')}: {what}"
    best = state["best"]
    leads = best is not None and best["program"] == last.program and last.improved
    marks = " *new best*" if leads else " (best of its intent)" if last.improved else _not_better(node, last)
    judged = last.program is not None and last.verdict not in ("duplicate", "unusable")
    if judged and vouch(last.program or "") == UNVERIFIED:
        marks = "" if UNVERIFIED in said else f" ({UNVERIFIED})"
    reused = " [verdict reused]" if last.reused else ""
    samples = f" (best of {len(last.samples)}: {', '.join(last.samples)})" if last.samples else ""
    place = f"[{state['evaluations']:>3}/{budget}] {node.id} {node.intent.title} #{node.attempts}"
    return f"{place}: {said}{samples}{reused}{marks}"


def _not_better(node: TreeNode, last: LastAttempt) -> str:
    """Why a higher score was not taken."""
    return " (not beyond the noise)" if node.score is not None and last.score > node.score else ""


def baseline_view(rows: Sequence[BaselineTiming], whole: bool = True) -> RenderableType:
    """Latency of every PyTorch formulation on every workload; programs are measured against the strongest.

    Of many workloads, unless `whole`, how each formulation did over all of them.
    """
    names = list(dict.fromkeys(name for row in rows for name in (*row.latency_us, *row.errors)))
    if len(rows) > FEW and not whole:
        return _formulations(rows, names)
    table = Table("workload")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(escape(row.workload), *(_latency(row, name) for name in names))
    said = "PyTorch baselines in us; programs are measured against the strongest (*)"
    if any(row.plan_us for row in rows):
        said += "; plan: host time before the call, not part of it"
    return Group(said, table)


def _formulations(rows: Sequence[BaselineTiming], names: list[str]) -> RenderableType:
    table = Table("baseline", "strongest on", "against the strongest", "cannot run on")
    for column in table.columns[1:]:
        column.justify = "right"
    for name in names:
        ratios = [row.latency_us[name] / row.latency_us[row.strongest] for row in rows if name in row.latency_us]
        slower = f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}x its latency" if ratios else "-"
        failed = sum(name not in row.latency_us for row in rows)
        table.add_row(name, str(sum(row.strongest == name for row in rows)), slower, str(failed or "-"))
    head = f"PyTorch baselines on {len(rows)} workloads; programs are measured against the strongest on each"
    return Group(head, table, Text(baseline_line(rows).capitalize()))


def _latency(row: BaselineTiming, name: str) -> str:
    if name not in row.latency_us:
        return "-"
    planned = f" (+{in_us(row.plan_us[name])} plan)" if name in row.plan_us else ""
    return f"{in_us(row.latency_us[name])}{'*' if name == row.strongest else ''}{planned}"


def held_out_failure(state: SearchState) -> str | None:
    """What became of the best program on held-out inputs when it did not pass there; None: it did, or was not tried."""
    result = state["result"]
    failed = result is not None and result.get("held_out_verdict") and result["gap"] is None
    return str(result["held_out_verdict"]) if result is not None and failed else None


def result_view(
    state: SearchState, verdict: Verdict | None, vouch: Vouch, whole: bool = False
) -> RenderableType:  # fmt: skip
    """The end of a run: best program against the baseline, on each workload and on inputs never seen.

    Of many workloads, unless `whole`, those with the least and the most gain.
    """
    lines: list[RenderableType] = [tree_view(state, vouch)]
    verified = verdict is not None and verdict.receipt is not None
    best = None if state["best"] is None else Best.model_validate(state["best"])
    if best is None:
        lines.append("No program passed.")
    else:
        speed = f"{best.score / 100:.2f}x the strongest PyTorch formulation" if verified else UNVERIFIED
        lines.append(Text(f"Best: J = {best.score:.1f} ({speed}), program {best.program}, intent {best.node}", "bold"))
    if isinstance(verdict, Passed):
        lines.append(timing_table(verdict, whole))
    lines += _held_out(state, verified)
    lines.append(
        f"{state['evaluations']} evaluations, {state['turns']} world-model turns, {state['attempts']} attempts"
    )
    if state["stop_reason"] and state["status"] == "done":
        lines.append(f"Ended because {state['stop_reason']}.")
    note = label(state)
    return Group(*lines, *([Text(note, "yellow")] if note else []))


def _held_out(state: SearchState, verified: bool) -> list[RenderableType]:
    """The line about inputs that the search never saw; none before they were tried."""
    result, failure = state["result"], held_out_failure(state)
    if failure is not None:
        said = (
            f"The best program did not pass on held-out inputs: {failure}\nIts J holds for the search's own workloads"
        )
        return [Text(said, "bold red")]
    if result is None or not result.get("held_out_verdict"):
        return []
    known = verified and UNVERIFIED not in result["held_out_verdict"]
    gap = f", {result['gap']:+.1%} against the search's own workloads" if known else ""
    return [Text(f"On held-out inputs: {result['held_out_verdict']}{gap}")]


def runs_table(rows: Iterable[dict[str, Any]]) -> Table:
    """The list of runs; `short` is as much of an id as one has to type."""
    table = Table("run", "task", "status", "best J", "receipt", "evaluations", "model calls", "model", "begun (UTC)")
    for row in rows:
        score = "-" if row["best_score"] is None else f"{row['best_score']:.1f}"
        table.add_row(row["short"], row["task"], row["status"], score,
                      row["best_receipt"] or "-", f"{row['evaluations']}/{row['budget']}",
                      str(row["model_calls"]), row["model"], row["created"])  # fmt: skip
    return table


def vouchers(state: SearchState, archive: Archive) -> dict[str, str]:
    """Of each program in the tree, the id of the receipt behind its score, or "unverified"."""
    nodes = SearchTree.model_validate(state["tree"]).nodes
    return {node.program_id: archive.voucher(node.program_id) for node in nodes if node.program_id is not None}


def load(database: Path, run: str = "last") -> tuple[SearchState, list[Event], Vouch]:
    """For notebooks: a run's state, its events, what vouches for its scores. Raises UnknownRun or ArchiveError."""
    runs = Runs(database)
    try:
        state = runs.state(runs.find(run))
        known = vouchers(state, runs.archive)
        return state, runs.archive.events(state["run"], state["branch"]), lambda program: known.get(program, UNVERIFIED)
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
