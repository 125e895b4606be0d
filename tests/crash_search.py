"""A small scripted search that passes through every kind of step, with a probe that can kill it anywhere."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.types import Command

from graph.build import build_graph
from graph.checkpointer import Saver
from nodes.models.operator import OperatorModel
from nodes.replies import awaited_prompts
from nodes.services import Services
from state.archive import Archive
from state.lease import Lease
from state.program import Program
from state.settings import Settings
from state.verdict import CompileError, Crashed, Passed, Verdict, WorkloadTiming, WrongResult
from tasks.evaluator import BaselineTiming, EvaluatorUnavailable
from tasks.task import Task, load_task

SCAFFOLD = Path(__file__).parent.parent / "tasks" / "scaffold"
RUN = "1c6b7a9e-0000-4000-8000-000000000001"
SETTINGS = {
    "task": str(SCAFFOLD),
    "model": "playbook",
    "budget": 8,
    "approve": "prunes",
    "advanced": {"stagnation": 2, "seed_program": "void my_kernel() {} // score 80"},
}


@dataclass(frozen=True)
class Place:
    """Where a run lives: its database, the ledger of paid effects, and how often the device has come back."""

    folder: Path
    operated: bool = False
    """The models' replies are given by an operator, who pays for each when they write it."""

    @property
    def database(self) -> Path:
        return self.folder / "run.db"

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    @property
    def returned(self) -> Path:
        return self.folder / "returned"

    def fingerprint(self) -> list[tuple[int, int]]:
        """Changes whenever something durable is written."""
        files = [path.stat() for path in sorted(self.folder.iterdir()) if path.suffix != ".db-shm"]
        return [(file.st_size, file.st_mtime_ns) for file in files]

    def pay(self, effect: str) -> None:
        """The effect is on the ledger; one append, so that a kill leaves a whole line or none."""
        with self.ledger.open("ab", buffering=0) as file:
            file.write(f"{effect}\n".encode())

    def paid(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def back(self) -> int:
        return len(self.returned.read_bytes()) if self.returned.exists() else 0


@dataclass
class Probe:
    """Counts the places where a kill may fall; at number `fatal` the process kills itself, as kill -9 does.

    Two places between which nothing durable was written leave the same files behind: they count once.
    """

    place: Place
    fatal: int | None = None
    names: list[str] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: object = None

    def window(self, name: str) -> None:
        with self.lock:
            self.passed[name] += 1
            found = self.place.fingerprint()
            if found == self.seen:
                return
            self.seen = found
            self.names.append(name)
            if len(self.names) - 1 == self.fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def opening(self) -> Iterator[None]:
        """On connections opened in here, each write outside a transaction and each commit is a window."""

        def attach(frame: FrameType, event: str, function: Any) -> None:
            connection = getattr(function, "__self__", None)
            if event == "c_call" and isinstance(connection, sqlite3.Connection) and function.__name__ == "execute":
                connection.set_trace_callback(partial(self._statement, connection))

        sys.setprofile(attach)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _statement(self, connection: sqlite3.Connection, sql: str) -> None:
        word = sql.split(None, 1)[0].upper()
        if word == "COMMIT" or not (connection.in_transaction or word in _HARMLESS):
            self.window(f"sql {' '.join(sql.split()[:3])}")


_HARMLESS = ("SELECT", "PRAGMA", "EXPLAIN", "BEGIN", "SAVEPOINT", "--")
"""Statements before which the file is as it was before the statement that came before them."""


class ScriptedModel(BaseChatModel):
    """World model and coder; a reply follows from the messages alone."""

    place: Any
    probe: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        reply = replied("\0".join(message.text for message in messages), self.place, self.probe)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply))])


def replied(text: str, place: Place, probe: Probe) -> str:
    """The reply to all that was said, paid for."""
    probe.window("before model call")
    place.pay(f"model {hashlib.sha256(text.encode()).hexdigest()[:12]}")
    probe.window("after model call")
    return _edits(text) if "# The tree" in text else _code(text)


def _insert(title: str, priority: float, parent: str = "n0", key: str | None = None) -> dict[str, object]:
    return {"kind": "insert", "parent": parent, "key": key, "title": title, "priority": priority}


def _edits(text: str) -> str:
    found = re.search(r"^Round (\d+)\.", text, re.MULTILINE)
    assert found is not None
    repaired = "Your reply could not be used" in text
    match int(found[1]):
        case 0 if not repaired:
            return "I would rather not answer in JSON."
        case 0:
            edits = [_insert("Tile the rows", 0.9, key="t"), _insert("Vectorise", 0.6), _insert("Sort the input", 0.3)]
            edits.append(_insert("Pack the tiles", 0.95, parent="t"))
        case 1:
            edits = [
                {"kind": "prune", "node": "n3", "evidence": "sorting cannot help"},
                {"kind": "update", "node": "n2", "priority": 0.5, "evidence": "tiling did well"},
                _insert("Vectorise", 0.4),
            ]
        case 2 if not repaired:
            edits = [{"kind": "update", "node": "n2"}, {"kind": "explode"}]
        case 2:
            edits = [{"kind": "prune", "node": "n2", "evidence": "packing is enough"}]
        case _ if "No open intent" in text:
            edits = [_insert("Prefetch", 0.5)]
        case _:
            edits = []
    return json.dumps({"edits": edits})


CODE = {
    ("Tile the rows", 1): "score 120",
    ("Tile the rows", 2): "score 120",
    ("Tile the rows", 3): "wrong away 2",
    ("Pack the tiles", 1): "score 150",
    ("Pack the tiles", 2): None,
    ("Pack the tiles", 3): "compile_error",
    ("Vectorise", 1): "score 160 confirm 90",
    ("Vectorise", 2): "crash",
    ("Vectorise", 3): "score 88",
    ("Prefetch", 1): "score 200",
}
"""What each attempt's program says of itself; None is a reply without a program."""


def _code(text: str) -> str:
    title = re.findall(r"^# The intent\n\n(.*)$", text, re.MULTILINE)[-1]
    attempt = int(re.findall(r"This is attempt (\d+)", text)[-1])
    says = CODE[title, attempt]
    return "No idea." if says is None else f"```cpp\nvoid my_kernel() {{}} // {says}\n```"


class DirectedEvaluator:
    """Gives each program the verdict that its comment asks for; is away until `returned` is long enough."""

    version = "directed-1"
    hardware = "no hardware"

    def __init__(self, task: Task, place: Place, probe: Probe) -> None:
        self.task, self.place, self.probe = task, place, probe

    def baseline(self) -> tuple[BaselineTiming, ...]:
        self._measure("baseline", None, needs=1)
        return tuple(
            BaselineTiming(workload=w.name, latency_us={"eager": 100.0}, strongest="eager") for w in self.task.workloads
        )

    def use_baseline(self, timings: tuple[BaselineTiming, ...]) -> None:
        pass

    def prepare(self, programs: Sequence[Program]) -> None:
        pass

    def evaluate(self, program: Program) -> Verdict:
        self._measure("evaluate", program, needs=int(_said("away", program) or 0))
        if "compile_error" in program.source:
            return CompileError(message="expected ';'")
        if "crash" in program.source:
            return Crashed(signal="SIGSEGV", message="segmentation fault")
        if "wrong" in program.source:
            return WrongResult(reason="mismatch", workload="w", message="off by one")
        return self._passed(_said("score", program))

    def confirm(self, program: Program) -> Verdict:
        self._measure("confirm", program)
        return self._passed(_said("confirm", program) or _said("score", program))

    def held_out(self, program: Program) -> Verdict:
        self._measure("held_out", program, needs=3)
        return self._passed(_said("score", program))

    def close(self) -> None:
        pass

    def _measure(self, kind: str, program: Program | None, needs: int = 0) -> None:
        if self.place.back() < needs:
            raise EvaluatorUnavailable("the device is away")
        self.probe.window(f"before {kind}")
        self.place.pay(f"{kind} {'' if program is None else program.id}")
        self.probe.window(f"after {kind}")

    def _passed(self, score: float | None) -> Passed:
        assert score is not None
        timings = tuple(
            WorkloadTiming(
                workload=w.name, latency_us=1e4 / score, baseline_us=100.0, baseline="eager", noise=0.001
            )
            for w in self.task.workloads
        )  # fmt: skip
        return Passed(timings=timings, noise=0.001)


def _said(word: str, program: Program) -> float | None:
    found = re.search(rf"{word} ([\d.]+)", program.source)
    return None if found is None else float(found[1])


class ProbedLease(Lease):
    """Entered before a node's work and left after it."""

    def __init__(self, database: Path, run: str, probe: Probe) -> None:
        super().__init__(database, run)
        self.probe = probe

    def __enter__(self) -> ProbedLease:
        self.probe.window("before node")
        super().__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self.probe.window("after node")


class ProbedSaver(Saver):
    """Windows around each checkpoint and each set of writes."""

    def __init__(self, path: Path, probe: Probe) -> None:
        self.probe = probe
        with probe.opening():
            super().__init__(path)

    def put(self, *args: Any, **kwargs: Any) -> Any:
        self.probe.window("before checkpoint")
        saved = super().put(*args, **kwargs)
        self.probe.window("after checkpoint")
        return saved

    def put_writes(self, *args: Any, **kwargs: Any) -> None:
        self.probe.window("before writes")
        super().put_writes(*args, **kwargs)


class ProbedServices:
    """A factory like the live one, around the scripted outside world."""

    def __init__(self, place: Place, probe: Probe) -> None:
        self.place, self.probe = place, probe
        self.task = load_task(SCAFFOLD)
        self.made: Services | None = None

    def __call__(self, run: str, settings: Settings) -> Services:
        if self.made is None:
            operated = self.place.operated
            model = OperatorModel() if operated else ScriptedModel(place=self.place, probe=self.probe)
            with self.probe.opening():
                archive = Archive(self.place.database)
            self.made = Services(
                run=run,
                settings=settings,
                task=self.task,
                archive=archive,
                evaluator=DirectedEvaluator(self.task, self.place, self.probe),
                world_model=model,
                coder=model,
                lease=ProbedLease(self.place.database, run, self.probe),
            )
        return self.made


def answer(question: dict[str, Any], place: Place, probe: Probe) -> object:
    """A person's reply: the device is back; or replies to prompts; or the decisions on the tree edits."""
    if question["kind"] == "prompts":
        return {prompt["id"]: replied(prompt["text"], place, probe) for prompt in question["prompts"]}
    if question["kind"] == "parked":
        place.returned.write_bytes(b"x" * (place.back() + 1))
        return True
    decisions: list[dict[str, object]] = []
    for request in question["action_requests"]:
        if request["name"] == "update":
            decisions.append({"type": "edit", "edited_action": {"args": {**request["args"], "priority": 0.7}}})
        elif request["args"].get("node") == "n2":
            decisions.append({"type": "reject", "message": "it has not been tried"})
        else:
            decisions.append({"type": "approve"})
    return {"pending": question["pending"], "decisions": decisions}


def advance(place: Place, probe: Probe, durability: Any = "sync") -> dict[str, Any]:
    """The run goes on from wherever the file says it is, to its end; returns its final state."""
    probe.window("start")
    saver = ProbedSaver(place.database, probe)
    services = ProbedServices(place, probe)
    graph = build_graph(services).compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": RUN}, "recursion_limit": 10_000}
    while True:
        snapshot = graph.get_state(config)
        value: Any = None
        if snapshot.interrupts:
            probe.window("before answer")
            question = snapshot.interrupts[0].value
            archive = services(RUN, Settings.model_validate(snapshot.values["settings"])).archive
            if question["kind"] != "prompts" or awaited_prompts(snapshot.values, archive):
                value = Command(resume=answer(question, place, probe))
        elif snapshot.created_at is None:
            value = SETTINGS
        elif not snapshot.next:
            return dict(snapshot.values)
        graph.invoke(value, config, durability=durability)
