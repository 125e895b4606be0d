"""The evaluator for programs on this machine, on its processor or on its GPU."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from state.program import Program
from state.verdict import VERDICT, Receipt, Verdict
from tasks import host
from tasks.channel import Message
from tasks.compiler import find_compiler
from tasks.errors import WorkFailed
from tasks.evaluator import BaselineTiming, EvaluatorUnavailable
from tasks.isolation import usable_cores
from tasks.task import Device, Task, TensorSpec, Tolerance, Workload
from tasks.trusted import TrustedProcess, defeat
from tasks.version import VERSION

LONGER = 3
"""How many times the rounds of an ordinary evaluation a confirmation takes."""
_METHOD = {
    "cpu": "interleaved rounds in alternating order; each call on fresh inputs, after an untimed one on older inputs; "
    "candidate stopped while the baseline runs; median of per-round ratios; candidate's own clock within the wall "
    "clock's slack",
    "cuda": "interleaved rounds in alternating order, each call on fresh inputs; device-wide synchronisation; 256 MiB "
    "written before each timed call (cold caches); launches hidden behind a sleeping kernel; time between two events "
    "plus what still ran on other streams; median of per-round ratios, until the standard error is below the target "
    "or the budget ends; every third round a call without flush and sleep, whose own time must agree with the wall "
    "clock",
}


class LocalEvaluator:
    """Builds, checks and times, each candidate in a process of its own. Safe for use by several threads.

    Raises ToolMissing at once when a C++ task's g++ cannot be used.
    """

    def __init__(
        self, task: Task, *, device: Device = "cpu", march: str = "native", threads: int | None = None,
        rounds: int | None = None, patience_s: float = 900.0,
    ) -> None:  # fmt: skip
        """`rounds` is the number of timing rounds at most: 15 on a CPU and 60 on a GPU when it is not given."""
        self._task = task
        self._language = task.languages[0]
        self._device: Device = device
        self._isa = find_compiler(march).isa if self._language == "cpp" else ""
        self._threads = threads or usable_cores()
        self._rounds = rounds or rounds_for(device)
        self._patience_s = patience_s
        self._lock = threading.RLock()
        self._folder = Path(tempfile.mkdtemp(prefix="ksearch-"))
        load = {"task": plain(task), "device": device, "language": self._language, "march": march,
                "folder": str(self._folder)}  # fmt: skip
        self._trusted = TrustedProcess(load, self._threads, self._folder)
        self._baseline: dict[str, BaselineTiming] = {}
        self._finalizer = weakref.finalize(self, _clean_up, self._trusted, self._folder, os.getpid())

    @property
    def version(self) -> str:
        """Changes whenever equal programs might get other verdicts."""
        return f"{self._device}-{VERSION}"

    @property
    def hardware(self) -> str:
        """What a verdict holds for: the processor with threads and instruction set, or the GPU.

        Raises EvaluatorUnavailable when the GPU must be asked and is away.
        """
        if self._device == "cuda":
            with self._lock:
                self._trusted.start()
                return str(self._trusted.loaded["hardware"])
        return host.described(self._threads, self._isa)

    @property
    def trusted_pid(self) -> int | None:
        """The trusted process; with it only what candidates are forked from lives between evaluations."""
        return self._trusted.pid

    def baseline(self) -> tuple[BaselineTiming, ...]:
        """Fresh timings of every formulation on every workload; later evaluations measure against them.

        Raises EvaluatorUnavailable, TaskError.
        """
        with self._lock:
            names = [workload.name for workload in self._task.workloads]
            reply = self._ask({"do": "race", "workloads": names})
            return self._keep(reply["timings"])

    def use_baseline(self, timings: tuple[BaselineTiming, ...]) -> None:
        """Later evaluations measure against the strongest formulation per workload of these timings."""
        for timing in timings:
            if timing.strongest not in self._task.baselines or timing.strongest not in timing.latency_us:
                raise ValueError(f"baseline of {timing.workload!r}: {timing.strongest!r} is no timed formulation")
        with self._lock:
            self._baseline.update({timing.workload: timing for timing in timings})

    def prepare(self, programs: Sequence[Program]) -> None:
        """These programs are built, side by side. Raises EvaluatorUnavailable, ToolMissing."""
        if len(programs) > 1:
            with self._lock:
                self._ask({"do": "build", "programs": [message(program) for program in programs]})

    def evaluate(self, program: Program) -> Verdict:
        """An ordinary evaluation: about a second beyond the compiler. Raises EvaluatorUnavailable, TaskError."""
        return self._verdict(program, self._task.workloads, 1)

    def confirm(self, program: Program) -> Verdict:
        """An evaluation with three times the rounds. Raises EvaluatorUnavailable, TaskError."""
        return self._verdict(program, self._task.workloads, LONGER)

    def held_out(self, program: Program) -> Verdict:
        """A longer evaluation on the held-out workloads. Raises EvaluatorUnavailable, TaskError."""
        return self._verdict(program, self._task.held_out or self._task.workloads, LONGER)

    def close(self) -> None:
        """Every process is dead and the build folder is gone; a closed evaluator cannot be used again."""
        with self._lock:
            self._finalizer()

    def _verdict(self, program: Program, workloads: tuple[Workload, ...], longer: int) -> Verdict:
        if program.language != self._language:
            raise ValueError(f"task {self._task.name!r} takes {self._language} programs here, no {program.language}")
        with self._lock:
            request = {"do": "evaluate", "program": message(program), "plan": self._plan(workloads, longer)}
            try:
                reply = self._ask(request)
            except WorkFailed as reason:
                if self._device == "cpu":
                    raise
                self._trusted.start()
                reply = defeat(reason)
            self._keep(reply["raced"])
            return VERDICT.validate_python({**reply["verdict"], "receipt": self._receipt(program, reply)})

    def _plan(self, workloads: tuple[Workload, ...], longer: int) -> Message:
        return plan(self._device, [workload.name for workload in workloads], self._baseline, longer, self._rounds)

    def _keep(self, raced: list[Message]) -> tuple[BaselineTiming, ...]:
        timings = tuple(BaselineTiming.model_validate(timing) for timing in raced)
        self._baseline.update({timing.workload: timing for timing in timings})
        return timings

    def _ask(self, request: Message) -> Message:
        """The reply. A device that failed under the harness gets one more chance with a fresh process."""
        if not self._finalizer.alive:
            raise ValueError("this evaluator was closed")
        try:
            self._trusted.start()
            return self._trusted.ask(request, self._patience_s)
        except EvaluatorUnavailable:
            if self._device == "cpu":
                raise
        self._trusted.start()
        return self._trusted.ask(request, self._patience_s)

    def _receipt(self, program: Program, reply: Message) -> Receipt:
        return receipt(self._task, program, (self.version, self.hardware, self._threads), self._trusted.loaded, reply)


def rounds_for(device: Device) -> int:
    """Rounds of an ordinary evaluation at most."""
    return 60 if device == "cuda" else 15


def plan(
    device: Device, workloads: list[str], baseline: dict[str, BaselineTiming], longer: int, rounds: int
) -> Message:
    """The plan of an evaluation: rounds and seconds of an ordinary one, `longer` times over."""
    chosen = {name: baseline[name] for name in workloads if name in baseline}
    return {
        "workloads": workloads,
        "strongest": {name: timing.strongest for name, timing in chosen.items()},
        "stored_us": {name: timing.latency_us[timing.strongest] for name, timing in chosen.items()},
        "rounds": rounds * longer,
        "budget_s": (1.5 if device == "cuda" else 0.6) * longer,
        "sure": 0.003 / longer if device == "cuda" else 0.0,
    }


def receipt(task: Task, program: Program, place: tuple[str, str, int], loaded: Message, reply: Message) -> Receipt:
    """The receipt of an evaluation. `place` is the evaluator's version, the hardware and the number of threads."""
    version, hardware, threads = place
    device = version.partition("-")[0]
    return Receipt(
        task=task.name,
        task_hash=task.hash,
        inputs=task.provenance,
        program_id=program.id,
        evaluator=version,
        hardware=hardware,
        isa=loaded.get("isa", ""),
        versions=loaded.get("versions", {}),
        compiler_flags=tuple(loaded.get("compiler_flags", ())),
        threads=threads,
        environment=loaded.get("environment", {}),
        seeds=tuple(reply.get("seeds", ())),
        method=_METHOD[device] if reply.get("rounds") else "",
        rounds=reply.get("rounds", 0),
        checks=tuple(reply.get("checks", ())),
        isolation=tuple(reply.get("isolation", ())),
        resources=reply.get("notes", ""),
        compile_s=reply["compile_s"],
        evaluate_s=reply["evaluate_s"],
    )


def message(program: Program) -> Message:
    """The program as it travels to the worker."""
    return {"id": program.id, "language": program.language, "text": program.source}


def _clean_up(trusted: TrustedProcess, folder: Path, owner: int) -> None:
    """For close(), garbage collection and the end of the interpreter; a forked child leaves all alone."""
    if os.getpid() == owner:
        trusted.end()
        shutil.rmtree(folder, ignore_errors=True)


def plain(task: Task) -> dict[str, Any]:
    """The task as JSON, with every shape worked out: what the trusted process reads."""

    def tensors(specs: tuple[TensorSpec, ...], dims: dict[str, int]) -> list[dict[str, Any]]:
        return [
            {"name": spec.name, "dtype": spec.dtype, "shape": spec.extents(dims), "partial": spec.partial}
            for spec in specs
        ]

    tolerance = task.tolerance or Tolerance(atol=0.0, rtol=0.0)
    return {
        "reference": str(task.reference),
        "manifest": str(task.folder / "task.toml"),
        "entry_point": task.entry_point,
        "prototype": task.prototype(),
        "dims": task.dims,
        "params": task.params,
        "call": task.call,
        "own_check": task.own_check,
        "may_write": task.may_write,
        "tolerance": tolerance.model_dump(),
        "call_s": task.limits.call_s,
        "compile_s": task.limits.compile_s,
        "memory_mb": task.limits.memory_mb,
        "gpu_memory_mb": task.limits.gpu_memory_mb,
        "baselines": task.baselines,
        "checked": [load.name for load in task.checked],
        "workloads": [
            {
                "name": load.name,
                "dims": load.dims,
                "params": load.params,
                "args": load.args,
                "inputs": tensors(task.inputs, load.dims),
                "outputs": tensors(task.outputs, load.dims),
                "operations": task.operations(load.dims) or 0.0,
            }
            for load in (*task.workloads, *task.held_out, *task.checked)
        ],
    }
