"""A run on the screen while it happens: a live tree in a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from graph.report import attempt_line, baseline_table, label, tree_view
from state.search import Action, Best, SearchState
from state.settings import Settings
from state.tree import SearchTree


class PlainWatcher:
    """One line per event, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
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
            self._console.print(baseline_table(state))
        elif node == "instantiate" and state["last"] is not None and not state["parked"]:
            verdicts = Action.model_validate(state["action"]).verdicts
            if verdicts[-2:] != ("duplicate", "duplicate"):
                self._line(attempt_line(state))
        elif node == "select" and state["action"] is not None:
            tree = SearchTree.model_validate(state["tree"])
            chosen = tree[Action.model_validate(state["action"]).node]
            self._line(f"round {state['round']}: {chosen.id} {chosen.intent.title} (V {chosen.priority:.2f})")
        elif node == "approve":
            for line in state["rejected"]:
                self._line(f"edit refused: {line}")

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveWatcher:
    """The budget, the current intent, the best J and the tree, redrawn after every step."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(Text("measuring the PyTorch baselines ..."), console=console, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.update(Text(""))
        self._live.__exit__(kind, error, trace)

    def __call__(self, node: str, state: SearchState) -> None:
        """The step is on the screen."""
        if "tree" in state:
            self._live.update(self._view(state), refresh=True)

    def _view(self, state: SearchState) -> Group:
        settings = Settings.model_validate(state["settings"])
        best = None if state["best"] is None else Best.model_validate(state["best"])
        grid = Table.grid(padding=(0, 1))
        grid.add_row(
            Text(f"{settings.task}", "bold"),
            ProgressBar(total=settings.budget, completed=state["evaluations"], width=30),
            f"{state['evaluations']}/{settings.budget} evaluations",
            Text("best J -" if best is None else f"best J {best.score:.1f}", "bold green"),
        )
        lines = [Text(attempt_line(state))] if state["last"] is not None else []
        if state["action"] is not None:
            action = Action.model_validate(state["action"])
            intent = SearchTree.model_validate(state["tree"])[action.node].intent
            lines.append(Text(f"now: {intent.title}, attempt {action.attempts + 1}", "cyan"))
        note = label(state)
        return Group(grid, *([Text(note, "yellow")] if note else []), *lines, tree_view(state))


Watcher = PlainWatcher | LiveWatcher


def watcher_for(console: Console) -> Watcher:
    """Live in a terminal, plain otherwise."""
    return LiveWatcher(console) if console.is_terminal else PlainWatcher(console)
