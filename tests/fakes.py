"""Deterministic stand-ins for what a run pays for. They are injected; nothing is patched."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.types import Command
from pydantic import Field

from graph.build import RECURSION_LIMIT, build_graph
from graph.checkpointer import Saver
from nodes.models.playbook import PlaybookModel
from nodes.services import Services
from prompts.rendering import SHIPPED
from state.archive import Archive
from state.calls import Clock
from state.lease import Lease
from state.program import Program
from state.settings import Settings
from state.verdict import CompileError, Passed, Verdict, WorkloadTiming
from tasks.evaluator import BaselineTiming, EvaluatorUnavailable
from tasks.playbook import load_playbook
from tasks.task import Task, Workload, load_task

SCAFFOLD = Path(__file__).parent.parent / "tasks" / "scaffold"


class HashEvaluator:
    """Verdicts that follow from a program's text alone: always the same, in every process."""

    version = "hash-1"
    hardware = "no hardware"

    def __init__(self, task: Task) -> None:
        self.task = task
        self.away = 0
        """Number of evaluations to refuse as unavailable."""
        self.evaluated: list[str] = []

    def baseline(self) -> tuple[BaselineTiming, ...]:
        return tuple(
            BaselineTiming(workload=w.name, latency_us={"eager": 100.0}, strongest="eager") for w in self.task.workloads
        )

    def use_baseline(self, timings: tuple[BaselineTiming, ...]) -> None:
        pass

    def prepare(self, programs: Sequence[Program]) -> None:
        pass

    def evaluate(self, program: Program) -> Verdict:
        if self.away:
            self.away -= 1
            raise EvaluatorUnavailable("the device is away")
        self.evaluated.append(program.id)
        return self._verdict(program)

    def confirm(self, program: Program) -> Verdict:
        return self._verdict(program)

    def held_out(self, program: Program) -> Verdict:
        return self._verdict(program, self.task.held_out)

    def close(self) -> None:
        pass

    def _verdict(self, program: Program, workloads: Sequence[Workload] = ()) -> Verdict:
        number = int(hashlib.sha256(program.source.encode()).hexdigest()[:4], 16)
        if number % 5 == 0:
            return CompileError(message=f"error {number}")
        timings = tuple(
            WorkloadTiming(
                workload=w.name,
                latency_us=50.0 + number % 89,
                baseline_us=100.0,
                baseline="eager",
                noise=0.001,
            )
            for w in workloads or self.task.workloads
        )
        return Passed(timings=timings, noise=0.001)


class StatedEvaluator(HashEvaluator):
    """Verdicts that programs state themselves: `// J 150`, `// confirmed 90`; without one it does not compile.

    `// leaves out NAME`: a pass is not measured on that workload; `// confirmation leaves out NAME`: only then.
    `// held out: wrong`: it does not pass there.
    """

    version = "stated-1"

    def baseline(self) -> tuple[BaselineTiming, ...]:
        self._here()
        return super().baseline()

    def held_out(self, program: Program) -> Verdict:
        self._here()
        if "// held out: wrong" in program.source:
            return CompileError(message="error: not on these")
        found = re.search(r"// J (\d+)", program.source)
        return self._verdict(program) if found is None else self._passed(float(found[1]), self.task.held_out)

    def confirm(self, program: Program) -> Verdict:
        found = re.search(r"// confirmed (\d+)", program.source)
        verdict = self._verdict(program) if found is None else self._passed(float(found[1]))
        return _without(verdict, re.search(r"// confirmation leaves out (\w+)", program.source))

    def _here(self) -> None:
        if self.away:
            self.away -= 1
            raise EvaluatorUnavailable("the device is away")

    def _verdict(self, program: Program) -> Verdict:
        found = re.search(r"// J (\d+)", program.source)
        if found is None:
            return CompileError(message="error: it states no score")
        return _without(self._passed(float(found[1])), re.search(r"// leaves out (\w+)", program.source))

    def _passed(self, score: float, workloads: Sequence[Workload] = ()) -> Passed:
        return Passed(
            timings=tuple(
                WorkloadTiming(workload=w.name, latency_us=1e4 / score, baseline_us=100.0, baseline="eager", noise=0.0)
                for w in workloads or self.task.workloads
            ),
            noise=0.0,
        )


def _without(verdict: Verdict, left_out: re.Match[str] | None) -> Verdict:
    """The verdict without the timing of the workload that was found."""
    if left_out is None or not isinstance(verdict, Passed):
        return verdict
    kept = tuple(timing for timing in verdict.timings if timing.workload != left_out[1])
    return verdict.model_copy(update={"timings": kept})


class ScriptedModel(BaseChatModel):
    """Gives these replies in turn, the last one for ever, and remembers what it was asked."""

    replies: list[str]
    asked: list[list[BaseMessage]] = Field(default_factory=list)

    def prompt(self, call: int) -> str:
        """The text of the last message of a call."""
        return self.asked[call][-1].text

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any,
    ) -> ChatResult:  # fmt: skip
        reply = self.replies[min(len(self.asked), len(self.replies) - 1)]
        self.asked.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply))])


def edits(*items: dict[str, Any]) -> str:
    """A world model's reply."""
    return json.dumps({"edits": items})


def insert(title: str, priority: float, parent: str = "n0", **fields: Any) -> dict[str, Any]:
    """An edit of such a reply."""
    return {"kind": "insert", "parent": parent, "title": title, "priority": priority, **fields}


def program(*lines: str) -> str:
    """A coder's reply; `StatedEvaluator` reads its lines."""
    body = "\n".join(f"// {line}" for line in lines)
    return f"```cpp\n{body}\nvoid my_kernel() {{}}\n```"


class FakeServices:
    """A factory like the live one, on a temporary database."""

    def __init__(self, database: Path, model: BaseChatModel | None = None) -> None:
        self.database = database
        self.task = load_task(SCAFFOLD)
        self.evaluator = HashEvaluator(self.task)
        self.model = model or PlaybookModel(playbook=load_playbook(self.task.playbook))
        self.coder = self.model
        self.later: BaseChatModel | None = None
        self.templates = SHIPPED
        self.clock: Clock = time.perf_counter
        self._made: dict[str, Services] = {}

    def __call__(self, run: str, settings: Settings) -> Services:
        if run not in self._made:
            self._made[run] = Services(
                run=run, settings=settings, task=self.task, archive=Archive(self.database, self.clock),
                evaluator=self.evaluator, world_model=self.model, coder=self.coder, later=self.later,
                templates=self.templates,
                lease=Lease(self.database, run),
            )  # fmt: skip
        return self._made[run]


def scripted(
    database: Path, world_model: list[str], coder: list[str]
) -> tuple[FakeServices, ScriptedModel, ScriptedModel]:
    """Services with a model of its own for each role, and programs that state their scores."""
    planner, writer = ScriptedModel(replies=world_model), ScriptedModel(replies=coder)
    services = FakeServices(database, planner)
    services.coder, services.evaluator = writer, StatedEvaluator(services.task)
    return services, planner, writer


def compiled(services: FakeServices) -> Any:
    """The graph on these services, with the saver that the command line uses."""
    return build_graph(services).compile(Saver(services.database)).with_config(recursion_limit=RECURSION_LIMIT)


def start(graph: Any, run: str = "run", **given: Any) -> dict[str, Any]:
    """The state in which a new run stops, by itself or to wait."""
    names = ("task", "model", "budget", "approve")
    advanced = {name: value for name, value in given.items() if name not in names}
    form = {name: value for name, value in given.items() if name in names} | {"advanced": advanced}
    result: dict[str, Any] = graph.invoke(form, thread(run), durability="sync")
    return result


def resume(graph: Any, value: Any = None, run: str = "run") -> dict[str, Any]:
    """The state in which the run stops again: a person answered, or the step goes on when there is no value."""
    command = None if value is None else Command(resume=value)
    result: dict[str, Any] = graph.invoke(command, thread(run), durability="sync")
    return result


def thread(run: str = "run") -> dict[str, Any]:
    """LangGraph's configuration of a run."""
    return {"configurable": {"thread_id": run}}
