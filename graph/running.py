"""Driving a run from a process of one's own: start, resume, answer, stop cleanly."""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, StateSnapshot

from graph.build import RECURSION_LIMIT, build_graph
from graph.checkpointer import Saver
from graph.services import LiveServices
from nodes.models.calling import allow_waits, end_waits
from nodes.projection import record
from nodes.replies import awaited_prompts
from nodes.services import Services
from state.archive import Archive
from state.database import DiskFull, needs_room
from state.lease import Leases
from state.search import SearchState
from state.settings import Settings

Status = Literal["done", "running", "parked", "waiting", "waiting for a reply", "paused", "full"]
"""waiting: for a person's approval, or for an operator's reply; parked: for the evaluator; full: for room on the disk;
paused: `ksearch resume` goes on."""
_WAITS: dict[str, Status] = {"approval": "waiting", "parked": "parked", "prompts": "waiting for a reply"}
"""By kind of interrupt."""


class Watcher(Protocol):
    """Whoever looks on while a run advances."""

    def __call__(self, node: str, state: SearchState) -> None:
        """Called after every step with the node's name and the state as it then is."""

    def stopping(self) -> None:
        """Called from a signal handler when the run was told to stop after the step in flight."""


class UnknownRun(ValueError):
    """No run, or more than one, has this id; the message lists what there is."""


@dataclass(frozen=True)
class Ended:
    """How a process's work on a run came to its end."""

    status: Status
    state: SearchState
    interrupt: dict[str, Any] | None = None
    """What the run waits for."""
    reason: str = ""
    """What the disk said."""


class Runs:
    """The runs in one database. Raises ArchiveError when the file cannot be used."""

    def __init__(self, database: Path) -> None:
        self.database = database.resolve()
        self.archive = Archive(self.database)
        self._leases = Leases(self.database)
        self._services = LiveServices(self.database, self._leases)
        with needs_room(self.database):
            self._saver = Saver(self.database)
        self.graph = build_graph(self._services).compile(checkpointer=self._saver)

    def close(self) -> None:
        """Nothing that was started is running any more; the database is closed."""
        self._services.close()
        self._saver.close()
        self.archive.close()

    def find(self, prefix: str) -> str:
        """The id of the run that starts with this; "last" is the newest. Raises UnknownRun."""
        rows = [str(row["run"]) for row in self.archive.runs()]
        if prefix == "last" and rows:
            return rows[0]
        matches = [run for run in rows if run.startswith(prefix)] if prefix else []
        if len(matches) == 1:
            return matches[0]
        known = ", ".join(self.short(run) for run in rows[:10]) or "none yet"
        what = "is not the id of one run" if not matches else f"fits {len(matches)} runs"
        raise UnknownRun(f"{prefix!r} {what} in {self.database} (newest first: {known})")

    def short(self, run: str) -> str:
        """The first characters of an id, eight or as many more as tell it from every other run's.

        The ids that `langgraph dev` gives begin with the time: runs begun within a minute share eight.
        """
        others = [str(row["run"]) for row in self.archive.runs() if row["run"] != run]
        length = 8
        while length < len(run) and any(other.startswith(run[:length]) for other in others):
            length += 1
        return run[:length]

    def snapshot(self, run: str) -> StateSnapshot:
        """The run's newest checkpoint."""
        return self.graph.get_state(_config(run))

    def state(self, run: str) -> SearchState:
        """The run's state, empty before its first checkpoint."""
        values: SearchState = self.snapshot(run).values  # type: ignore[assignment]
        return values

    def interrupt(self, run: str) -> dict[str, Any] | None:
        """What the run waits for, or None; replies that are in the archive already are not waited for."""
        snapshot = self.snapshot(run)
        waits = dict(snapshot.interrupts[0].value) if snapshot.interrupts else None
        state: SearchState = snapshot.values  # type: ignore[assignment]
        answered = waits is not None and waits["kind"] == "prompts" and not awaited_prompts(state, self.archive)
        return None if answered else waits

    def status(self, run: str) -> Status:
        """What the run is doing now."""
        if self._leases.of(run).held_elsewhere():
            return "running"
        if self.state(run).get("status") == "done":
            return "done"
        waits = self.interrupt(run)
        return "paused" if waits is None else _WAITS[waits["kind"]]

    def new_id(self) -> str:
        """An id for a new run: a UUID, as `langgraph dev` wants its threads named."""
        return str(uuid.uuid4())

    def services(self, run: str) -> Services:
        """What the run calls; before its first checkpoint UnknownRun is raised."""
        state = self.state(run)
        if "settings" not in state:
            raise UnknownRun(f"run {self.short(run)} has not begun: ksearch resume {self.short(run)}")
        return self._services(run, Settings.model_validate(state["settings"]))

    def prepare(self, run: str, settings: Settings) -> None:
        """Whatever could keep the run from beginning is raised: TaskError, ModelError or ToolMissing."""
        self._services(run, settings)

    def start(self, settings: Settings, watch: Watcher, run: str) -> Ended:
        """A new run, until it ends, waits, or is told to stop."""
        form = {"task": settings.task, "model": settings.model, "budget": settings.budget, "approve": settings.approve}
        advanced = settings.model_dump(mode="json", exclude=set(form), exclude_none=True)
        return self._drive({**form, "advanced": advanced}, run, watch)

    def resume(self, run: str, watch: Watcher) -> Ended:
        """Goes on where the run stopped; a run that waits for a person's word or reply goes on waiting."""
        waits = self.interrupt(run)
        if waits is not None and waits["kind"] == "approval":
            return Ended("waiting", self.state(run), waits)
        parked = waits is not None and waits["kind"] == "parked"
        return self._drive(Command(resume=True) if parked else None, run, watch)

    def answer(self, run: str, reply: dict[str, Any], watch: Watcher) -> Ended:
        """Gives a person's answer to the pending edits, or an operator's replies by prompt id, and goes on."""
        return self._drive(Command(resume=reply), run, watch)

    def edit(self, run: str, edits: list[dict[str, Any]]) -> None:
        """Adds a person's edits; the next `approve` or `select` applies them. Raises RunBusy.

        The update takes the place of the checkpoint at which a run waited, so `approve` asks once more.
        """
        with self._leases.of(run):
            waits = self.interrupt(run)
            state = self.state(run)
            self.graph.update_state(_config(run), {"person_edits": state["person_edits"] + edits})
            if waits is not None:
                self.graph.invoke(None, _config(run), durability="sync")

    def _drive(self, given: Any, run: str, watch: Watcher) -> Ended:
        control = RunControl()
        with self._leases.of(run), _stopping(control, watch):
            try:
                with needs_room(self.database):
                    self._advance(given, run, watch, control)
                    return self._ended(run)
            except DiskFull as full:
                return Ended("full", self.state(run), reason=full.reason)

    def _advance(self, given: Any, run: str, watch: Watcher, control: RunControl) -> None:
        """The run has ended, waits, or was told to stop; the watcher saw each step."""
        state: SearchState = self.state(run)
        try:
            stream = self.graph.stream(given, _config(run), stream_mode="updates", durability="sync", control=control)
            for update in stream:
                for node, changes in update.items():
                    if node != "__interrupt__" and changes:
                        state = {**state, **changes}
                        watch(node, state)
        except (GraphDrained, _StoppedAtOnce):
            pass

    def _ended(self, run: str) -> Ended:
        snapshot = self.snapshot(run)
        state: SearchState = snapshot.values  # type: ignore[assignment]
        if "tree" in state:
            record(state, Settings.model_validate(state["settings"]), self.archive)
        if not snapshot.next:
            return Ended("done", state)
        if snapshot.interrupts:
            waits = dict(snapshot.interrupts[0].value)
            return Ended(_WAITS[waits["kind"]], state, waits)
        return Ended("paused", state)


def _config(run: str) -> RunnableConfig:
    return {"configurable": {"thread_id": run}, "recursion_limit": RECURSION_LIMIT}


class _StoppedAtOnce(KeyboardInterrupt):
    """A second signal came: the step in flight is given up, and repeated by the next resume."""


@contextmanager
def _stopping(control: RunControl, watch: Watcher) -> Iterator[None]:
    """SIGINT and SIGTERM stop the run after the step in flight; a second one stops at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        if control.drain_requested:
            raise _StoppedAtOnce
        control.request_drain(signal.Signals(number).name)
        end_waits()
        watch.stopping()

    allow_waits()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
