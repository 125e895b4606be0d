"""The evaluator for C++ programs on this machine's processor."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from state.program import Program
from state.verdict import VERDICT, CompileError, Receipt, TimedOut, Verdict
from tasks import lock
from tasks.channel import Message
from tasks.compiler import Build, Compiler, build, find_compiler
from tasks.evaluator import BaselineTiming, EvaluatorUnavailable
from tasks.isolation import usable_cores
from tasks.task import Task, TensorSpec, Workload
from tasks.trusted import TrustedProcess, removed_settings

_BUDGET_S = 0.6
_LONGER = 3
"""How many times the rounds of an ordinary evaluation a confirmation takes."""
_ISA_LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
_METHOD = (
    "interleaved rounds in alternating order; each call on fresh inputs, after an untimed one on older inputs; "
    "candidate stopped while the baseline runs; median of per-round ratios; candidate's own clock within the wall "
    "clock's slack"
)


@dataclass(frozen=True)
class _Measured:
    """What a verdict's receipt needs to know about one evaluation."""

    program: Program
    compile_s: float = 0.0
    evaluate_s: float = 0.0
    reply: Message | None = None


class CpuEvaluator:
    """Compiles with g++, checks and times in a process of its own. Safe for use by several threads.

    Raises ToolMissing at once when g++ cannot be used.
    """

    def __init__(
        self, task: Task, *, march: str = "native", threads: int | None = None, rounds: int = 15,
        patience_s: float = 600.0,
    ) -> None:  # fmt: skip
        self._task = task
        self._compiler: Compiler = find_compiler(march)
        self._threads = threads or usable_cores()
        self._rounds = rounds
        self._patience_s = patience_s
        self._lock = threading.RLock()
        self._folder = Path(tempfile.mkdtemp(prefix="ksearch-"))
        self._trusted = TrustedProcess(plain(task), self._threads, self._folder)
        self._baseline: dict[str, BaselineTiming] = {}
        self._builds: dict[str, Build] = {}
        self._finalizer = weakref.finalize(self, _clean_up, self._trusted, self._folder, os.getpid())

    @property
    def version(self) -> str:
        """Changes whenever equal programs might get other verdicts."""
        return "cpu-2"

    @property
    def hardware(self) -> str:
        """Processor, cores, threads, instruction set of the build, and limits put on PyTorch's."""
        limits = [f"{key}={os.environ[key]}" for key in _ISA_LIMITS if key in os.environ]
        parts = [_processor(), f"{self._threads} threads", self._compiler.isa, *limits]
        return ", ".join(parts)

    @property
    def trusted_pid(self) -> int | None:
        """The trusted process, the only one that lives between evaluations; None before its first use."""
        return self._trusted.pid

    def baseline(self) -> tuple[BaselineTiming, ...]:
        """Fresh timings of every formulation on every workload; later evaluations measure against them.

        Raises EvaluatorUnavailable, TaskError.
        """
        with self._lock:
            self._start()
            names = [workload.name for workload in self._task.workloads]
            _, reply = self._ask({"do": "race", "workloads": names})
            return self._keep(reply["timings"])

    def use_baseline(self, timings: tuple[BaselineTiming, ...]) -> None:
        """Later evaluations measure against the strongest formulation per workload of these timings."""
        for timing in timings:
            if timing.strongest not in self._task.baselines or timing.strongest not in timing.latency_us:
                raise ValueError(f"baseline of {timing.workload!r}: {timing.strongest!r} is no timed formulation")
        with self._lock:
            self._baseline.update({timing.workload: timing for timing in timings})

    def evaluate(self, program: Program) -> Verdict:
        """An ordinary evaluation: about a second beyond the compiler. Raises EvaluatorUnavailable, TaskError."""
        return self._verdict(program, self._task.workloads, 1)

    def confirm(self, program: Program) -> Verdict:
        """An evaluation with three times the rounds. Raises EvaluatorUnavailable, TaskError."""
        return self._verdict(program, self._task.workloads, _LONGER)

    def held_out(self, program: Program) -> Verdict:
        """A longer evaluation on the held-out workloads. Raises EvaluatorUnavailable, TaskError."""
        return self._verdict(program, self._task.held_out or self._task.workloads, _LONGER)

    def close(self) -> None:
        """Every process is dead and the build folder is gone; a closed evaluator cannot be used again."""
        with self._lock:
            self._finalizer()

    def _verdict(self, program: Program, workloads: tuple[Workload, ...], longer: int) -> Verdict:
        with self._lock:
            began = time.monotonic()
            built = self._build(program)
            if not isinstance(built, Build):
                receipt = self._receipt(_Measured(program, time.monotonic() - began))
                return built.model_copy(update={"receipt": receipt})
            self._start()
            began, reply = self._ask(self._request(built, workloads, longer))
            seconds = time.monotonic() - began - reply["race_s"]
            self._keep(reply["raced"])
            measured = _Measured(program, built.seconds, seconds, reply)
            return VERDICT.validate_python({**reply["verdict"], "receipt": self._receipt(measured)})

    def _build(self, program: Program) -> Build | CompileError | TimedOut:
        if program.language not in self._task.languages:
            raise ValueError(f"task {self._task.name!r} takes no {program.language} programs")
        if program.id in self._builds:
            return self._builds[program.id]
        folder = self._folder / program.id
        try:
            with lock.compiling():
                built = build(self._compiler, self._task, program.source, folder)
        except lock.LockTimeout as error:
            raise EvaluatorUnavailable(str(error)) from None
        if isinstance(built, Build):
            self._builds[program.id] = built
        return built

    def _request(self, built: Build, workloads: tuple[Workload, ...], longer: int) -> Message:
        names = [workload.name for workload in workloads]
        chosen = {name: self._baseline[name] for name in names if name in self._baseline}
        return {
            "do": "evaluate",
            "workloads": names,
            "library": str(built.library),
            "folder": str(built.library.parent),
            "strongest": {name: timing.strongest for name, timing in chosen.items()},
            "stored_us": {name: timing.latency_us[timing.strongest] for name, timing in chosen.items()},
            "rounds": self._rounds * longer,
            "budget_s": _BUDGET_S * longer,
        }

    def _keep(self, raced: list[Message]) -> tuple[BaselineTiming, ...]:
        timings = tuple(BaselineTiming.model_validate(timing) for timing in raced)
        self._baseline.update({timing.workload: timing for timing in timings})
        return timings

    def _start(self) -> None:
        if not self._finalizer.alive:
            raise ValueError("this evaluator was closed")
        try:
            with lock.compiling():
                self._trusted.start()
        except lock.LockTimeout as error:
            raise EvaluatorUnavailable(str(error)) from None

    def _ask(self, request: Message) -> tuple[float, Message]:
        """When the request began (the machine was ours by then), and its reply."""
        try:
            with lock.timing():
                return time.monotonic(), self._trusted.ask(request, self._patience_s)
        except lock.LockTimeout as error:
            raise EvaluatorUnavailable(str(error)) from None

    def _receipt(self, measured: _Measured) -> Receipt:
        reply, loaded = measured.reply or {}, self._trusted.loaded
        versions = {"compiler": self._compiler.version, "system": platform.platform(), **loaded.get("versions", {})}
        return Receipt(
            task=self._task.name,
            task_hash=self._task.hash,
            program_id=measured.program.id,
            evaluator=self.version,
            hardware=self.hardware,
            isa=self._compiler.isa,
            versions=versions,
            compiler_flags=self._compiler.flags,
            threads=self._threads,
            environment={**loaded.get("environment", {}), **removed_settings(dict(os.environ))},
            seeds=tuple(reply.get("seeds", ())),
            method=_METHOD if reply else "",
            rounds=reply.get("rounds", 0),
            checks=tuple(reply.get("checks", ())),
            isolation=tuple(reply.get("isolation", ())),
            compile_s=measured.compile_s,
            evaluate_s=measured.evaluate_s,
        )


def _clean_up(trusted: TrustedProcess, folder: Path, owner: int) -> None:
    """For close(), garbage collection and the end of the interpreter; a forked child leaves all alone."""
    if os.getpid() == owner:
        trusted.end()
        shutil.rmtree(folder, ignore_errors=True)


def _processor() -> str:
    """Model name and logical core count."""
    model = platform.processor() or platform.machine()
    with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
        for line in file:
            if line.startswith(("model name", "Model")):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {os.cpu_count()} cores"


def plain(task: Task) -> dict[str, Any]:
    """The task as JSON, with every shape worked out: what the trusted process reads."""

    def tensors(specs: tuple[TensorSpec, ...], dims: dict[str, int]) -> list[dict[str, Any]]:
        return [{"name": spec.name, "dtype": spec.dtype, "shape": spec.extents(dims)} for spec in specs]

    return {
        "reference": str(task.reference),
        "manifest": str(task.folder / "task.toml"),
        "entry_point": task.entry_point,
        "dims": task.dims,
        "atol": task.tolerance.atol,
        "rtol": task.tolerance.rtol,
        "call_s": task.limits.call_s,
        "memory_mb": task.limits.memory_mb,
        "baselines": task.baselines,
        "workloads": [
            {
                "name": load.name,
                "dims": load.dims,
                "inputs": tensors(task.inputs, load.dims),
                "outputs": tensors(task.outputs, load.dims),
            }
            for load in (*task.workloads, *task.held_out)
        ],
    }
