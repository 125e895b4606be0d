"""A run on the screen while it happens: a live tree in a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from graph.report import Vouch, attempt_line, baseline_view, label, tree_view
from state.search import Action, Best, LastAttempt, SearchState
from state.settings import Settings
from state.tree import SearchTree
from tasks.evaluator import BaselineTiming

STOPPING = "stopping after the step in flight; once more stops at once and repeats that step later"
_BESIDE_TREE = 5
"""Lines of the live view that are not the tree."""


class PlainWatcher:
    """One line per event, for logs and pipes."""

    def __init__(self, console: Console, vouch: Vouch) -> None:
        self._console = console
        self._vouch = vouch
        self._baseline_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to restore."""

    def __call__(self, node: str, state: SearchState) -> None:
        """The step is on the screen."""
        if node == "initialize" and state["baseline"] and not self._baseline_shown:
            self._baseline_shown = True
            rows = [BaselineTiming.model_validate(row) for row in state["baseline"]]
            self._console.print(baseline_view(rows, whole=False))
        elif node == "instantiate" and state["last"] is not None and not state["parked"]:
            verdicts = Action.model_validate(state["action"]).verdicts
            count = 1 + max(1, len(LastAttempt.model_validate(state["last"]).samples))
            if verdicts[-count:] != ("duplicate",) * count:
                self._line(attempt_line(state, self._vouch))
        elif node == "select" and state["action"] is not None:
            tree = SearchTree.model_validate(state["tree"])
            chosen = tree[Action.model_validate(state["action"]).node]
            self._line(f"round {state['round']}: {chosen.id} {chosen.intent.title} (V {chosen.priority:.2f})")
        elif node == "approve":
            for line in state["rejected"]:
                self._line(f"edit refused: {line}")

    def stopping(self) -> None:
        """The person knows that they were heard. Unbuffered: a signal may come in the middle of a print."""
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"ksearch: {STOPPING}\n".encode())

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=not self._console.is_terminal)


class LiveWatcher:
    """Plain lines for what is over; below them budget, current attempt, best J and tree, redrawn all the time."""

    def __init__(self, console: Console, vouch: Vouch, opening: str) -> None:
        self._console = console
        self._vouch = vouch
        self._over = PlainWatcher(console, vouch)
        self._spinner = Spinner("dots", Text(opening))
        self._picture: RenderableType = Text("")
        self._live = Live(console=console, get_renderable=self._view, transient=True, refresh_per_second=8)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def __call__(self, node: str, state: SearchState) -> None:
        """The step is on the screen."""
        self._over(node, state)
        if "tree" in state:
            self._spinner.update(text=_now(node, state))
            self._picture = _picture(state, self._vouch, max(3, self._console.height - _BESIDE_TREE))
            self._live.refresh()

    def stopping(self) -> None:
        """The next redraw, a fraction of a second away, says so."""
        self._spinner.update(text=Text(STOPPING, "bold red", no_wrap=True, overflow="ellipsis"))

    def _view(self) -> RenderableType:
        return Group(self._spinner, self._picture)


def _now(node: str, state: SearchState) -> Text:
    """What goes on after this step."""
    text = "the world model revises the tree"
    if state["action"] is not None and node != "co_evolve":
        action = Action.model_validate(state["action"])
        intent = SearchTree.model_validate(state["tree"])[action.node].intent
        text = f"now: {intent.title}, attempt {action.attempts + 1}"
    elif state["stop_reason"] is not None:
        text = "measuring the best program on held-out inputs"
    return Text(text, "cyan", no_wrap=True, overflow="ellipsis")


def _picture(state: SearchState, vouch: Vouch, height: int) -> RenderableType:
    settings = Settings.model_validate(state["settings"])
    best = None if state["best"] is None else Best.model_validate(state["best"])
    spent = min(state["evaluations"] / settings.budget, 1.0)
    grid = Table.grid(padding=(0, 1))
    grid.add_row(
        ProgressBar(total=1.0, completed=spent, width=20),
        Text(f"{state['evaluations']}/{settings.budget} evaluations", no_wrap=True),
        Text("no program passed yet" if best is None else f"best J {best.score:.1f}", "bold green", no_wrap=True),
    )
    note = label(state)
    return Group(grid, *([Text(note, "yellow")] if note else []), tree_view(state, vouch, lines=height))


Watcher = PlainWatcher | LiveWatcher


def watcher_for(console: Console, vouch: Vouch, opening: str = "") -> Watcher:
    """Live in a terminal, plain otherwise; `opening` says what goes on until the first step is over."""
    if console.is_terminal:
        return LiveWatcher(console, vouch, opening)
    if opening:
        console.print(opening, markup=False, highlight=False, soft_wrap=True)
    return PlainWatcher(console, vouch)
