"""What came back from the machine that serves a spool, checked before anything of it is believed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from state.effects import Purpose
from state.program import Program
from state.verdict import VERDICT, Passed, Verdict
from tasks import envelope
from tasks.envelope import BadFile, Fields
from tasks.evaluator import BaselineTiming
from tasks.local import receipt
from tasks.spool import SpoolEvaluator
from tasks.task import Task
from tasks.version import VERSION

TIMINGS: TypeAdapter[tuple[BaselineTiming, ...]] = TypeAdapter(tuple[BaselineTiming, ...])


@dataclass(frozen=True)
class Answer:
    """What was measured for one request, all of it or a part."""

    program: Program | None
    """None: the baseline was asked for."""
    timings: tuple[BaselineTiming, ...]
    verdicts: dict[Purpose, tuple[Verdict, float]]
    """With the seconds that each took."""
    faults: tuple[str, ...]
    """Why the task's own files could not be used on that machine."""
    complete: bool
    versions: dict[str, str]
    """Of the machine that answered last."""


def asked(path: Path, spool: Path) -> Fields:
    """The request that a file answers. Raises BadFile when this spool knows of none."""
    for folder in (envelope.REQUESTS, envelope.COLLECTED):
        if (spool / folder / path.name).exists():
            return envelope.read_request(spool / folder / path.name)
    raise BadFile("it answers no request of this spool")


def checked(path: Path, task: Task, evaluator: SpoolEvaluator, program_of: Callable[[str], Program]) -> Answer:
    """The answer in a file, which a run on this task has asked for. Raises BadFile with what is wrong.

    `program_of` raises KeyError for a program that no run here has.
    """
    request = asked(path, evaluator.site.spool)
    if request["task_hash"] != task.hash:
        raise BadFile(f"it is about another task, or another version of it ({request['name']})")
    program = None if request["program"] is None else _known(request["program"], program_of)
    if path.stem not in _questions(evaluator, program):
        raise BadFile("it answers a request of another run")
    results = envelope.read_answer(path)
    purposes = {step["purpose"]: step for step in request["steps"]}
    if not set(results) <= set(purposes):
        raise BadFile("it holds more than was asked for")
    faults = tuple(str(r["reply"]["task_error"]) for r in results.values() if "task_error" in r["reply"])
    measured = {name: result for name, result in results.items() if "task_error" not in result["reply"]}
    try:
        timings = _timings(task, measured)
        verdicts = {
            cast(Purpose, name): _verdict(task, program, (purposes[name], request["device"]), result)
            for name, result in measured.items() if program is not None
        }  # fmt: skip
        versions = [dict(result["machine"]["loaded"].get("versions", {})) for result in results.values()]
    except (ValidationError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadFile(f"what it says cannot be true: {type(error).__name__}: {str(error).splitlines()[0]}") from None
    complete = not envelope.wanted(request, results)
    return Answer(program, timings, verdicts, faults, complete, versions[-1] if versions else {})


def _known(source: Fields, program_of: Callable[[str], Program]) -> Program:
    try:
        return program_of(str(source.get("id")))
    except KeyError:
        raise BadFile("it is about a program that no run in this database has") from None


def _questions(evaluator: SpoolEvaluator, program: Program | None) -> set[str]:
    """The names of all requests that the run can have made about a program, or about the baseline."""
    if program is None:
        return {envelope.digest(evaluator.baseline_request())}
    requests = (evaluator.program_request(program), evaluator.held_out_request(program))
    return {envelope.digest(request) for request in requests}


def _timings(task: Task, results: Fields) -> tuple[BaselineTiming, ...]:
    if "baseline" not in results:
        return ()
    timings = TIMINGS.validate_python(results["baseline"]["reply"]["timings"])
    if [timing.workload for timing in timings] != [workload.name for workload in task.workloads]:
        raise ValueError("it times other workloads")
    for timing in timings:
        _plausible(timing.strongest, task, *timing.latency_us.values())
        if timing.latency_us[timing.strongest] > min(timing.latency_us.values()):
            raise ValueError(f"{timing.strongest} is not the strongest formulation on {timing.workload}")
    return timings


def _verdict(task: Task, program: Program, question: tuple[Fields, str], result: Fields) -> tuple[Verdict, float]:
    """The verdict under a receipt that names the machine which reached it, and its seconds."""
    step, device = question
    reply, machine = result["reply"], result["machine"]
    place = (f"{device}-{VERSION}", str(machine["hardware"]), int(machine["threads"]))
    made = receipt(task, program, place, machine["loaded"], reply)
    verdict: Any = VERDICT.validate_python({**reply["verdict"], "receipt": made})
    if isinstance(verdict, Passed):
        if [timing.workload for timing in verdict.timings] != step["plan"]["workloads"]:
            raise ValueError("it times other workloads")
        for timing in verdict.timings:
            _plausible(timing.baseline, task, timing.latency_us, timing.baseline_us, 1.0 + timing.noise)
    return verdict, made.compile_s + made.evaluate_s


def _plausible(formulation: str, task: Task, *numbers: float) -> None:
    if formulation not in task.baselines:
        raise ValueError(f"{formulation} is no formulation of the task")
    if not all(math.isfinite(number) and number > 0 for number in numbers):
        raise ValueError("a latency is not a positive number")
