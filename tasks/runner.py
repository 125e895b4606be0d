"""A candidate's process as the trusted process holds it: stopped, resumed for each call, ended with all it left."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from dataclasses import dataclass
from typing import Any

from tasks.arena import Arena
from tasks.candidate import AWAKEN
from tasks.device import Cuda, DeviceSick
from tasks.fault import Fault, crash, raised, starved
from tasks.isolation import alive, descendants, kill_descendants, resident_peak, wait_until_quiet
from tasks.launcher import Launcher
from tasks.problem import Problem
from tasks.tool import Build

_START_S = 20.0
_LOG_BYTES = 1 << 20
_TAIL = 1500
_QUIET_S = 0.02
_SAMPLE_S = 0.05
"""How often the memory of a call that takes long is looked at."""
_MIB = 1 << 20
_THREAD_MIB = 136
"""Address space that one more thread reserves: its stack and a malloc arena."""
_TOP_PAD_MIB = 320
"""Address space of malloc's padding (see GLIBC_TUNABLES) and of OpenMP's own library."""


@dataclass(frozen=True)
class Call:
    """One call of the entry point, on both clocks."""

    own_us: float
    wall_us: float
    late_us: float = 0.0
    """What still ran on the device when the entry point's own stream was done."""
    host_us: float = 0.0
    """Until the entry point had returned, its work perhaps only launched."""


class Runner:
    """One candidate process; between calls it is stopped (SIGSTOP) and nothing of it runs."""

    def __init__(self, problem: Problem, arena: Arena, launcher: Launcher) -> None:
        """Raises DeviceSick when no process can be started."""
        self._problem = problem
        self._arena = arena
        self._uses_torch = launcher.uses_torch
        self._order = list(arena.offsets)
        launcher.prepare()
        self._spare = frozenset(descendants(os.getpid()))
        self._started = launcher.start(arena.fds)
        self._process = self._started.process
        self.enclosure = self._started.enclosure
        self._status: int | None = None
        self._closed = False
        self._peak_mb = 0
        self._at_rest_mb = 0
        self._device_free = 0
        self._called: set[str] = set()

    def load(self, build: Build) -> None:
        """The program is loaded, its entry point found, and the process is stopped; otherwise Fault.

        Raises DeviceSick when the process cannot use the device although it has loaded nothing yet.
        """
        setup = {
            "arena": self._arena.grant(),
            "memory": self._allowance() * _MIB,
            "file_size": _LOG_BYTES if not self._uses_torch else self._problem.memory_mb * _MIB,
            "library": build.path,
            "form": build.form,
            "entry_point": self._problem.entry_point,
            "calls": [self._layout(name) for name in self._order],
        }
        during = "while it was being loaded"
        try:
            self._started.control.send(json.dumps(setup).encode())
        except OSError:
            self._crash(during)
        if self._uses_torch:
            self._expect_context()
        limit = _START_S + (self._problem.compile_s if self._uses_torch else 0.0)
        answer = self._answer(limit, during)
        if not answer.startswith(b"ready"):
            said = answer.decode(errors="replace")
            raise (
                self._complaint(answer, during)
                if answer[:1] == b"!"
                else Fault(kind="compile_error", message=f"the shared object {said}")
            )
        self.stop()
        self._check_children("after it was loaded")

    def _expect_context(self) -> None:
        """Before any of the program's code ran, its process could use the device; otherwise DeviceSick."""
        answer = self._answer(_START_S, "before it was loaded")
        if answer != b"context":
            raise DeviceSick(f"a fresh process has {answer.decode(errors='replace')}")
        self._at_rest_mb = resident_peak(self._process) // _MIB
        if isinstance(self._problem.device, Cuda):
            self._device_free = self._problem.device.foreign_free_bytes()

    def _layout(self, name: str) -> dict[str, Any]:
        load, offsets = self._problem.loads[name], self._arena.offsets[name]
        specs = (*load.inputs, *load.outputs)
        return {
            "offsets": [offsets[spec.name] for spec in specs],
            "tensors": [
                {"offset": offsets[spec.name], "size": spec.nbytes, "dtype": str(spec.dtype).removeprefix("torch."),
                 "shape": list(spec.shape)} for spec in specs
            ],
            "dims": [load.dims[dim] for dim in self._problem.dims],
        }  # fmt: skip

    def _allowance(self) -> int:
        threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        return self._problem.memory_mb + threads * _THREAD_MIB + _TOP_PAD_MIB

    def call(self, workload: str, sleep_us: float = 0.0, cold: bool = False) -> Call:
        """The entry point has run once on the arena's contents, and the process is stopped again.

        On a GPU its launches are hidden behind `sleep_us` of a sleeping kernel, and `cold` caches are flushed first.
        Raises Fault: crashed, timed out, or a process left behind.
        """
        during = f"on workload {workload!r}"
        limit = self._problem.call_s
        if self._uses_torch and workload not in self._called:
            limit += self._problem.compile_s  # compiled when it is first called
        self._called.add(workload)
        index = b"%d" % self._order.index(workload)
        os.kill(self._process, signal.SIGCONT)
        self._ask(AWAKEN + b" " + index if self._uses_torch else AWAKEN, limit, during)
        request = b"%d %d" % (self._cycles(sleep_us), cold) if self._uses_torch else index
        began = time.perf_counter_ns()
        answer = self._ask(request, limit, during)
        ended = time.perf_counter_ns()
        if answer[:1] == b"!":
            raise self._complaint(answer, during)
        self.stop()
        self._check_children(during)
        self._check_device_memory(during)
        try:
            own, *rest = (int(word) / 1000 for word in answer.split())
        except ValueError:
            raise Fault(
                kind="rejected", reason="clock_mismatch", message=f"the reply {during} was forged: {answer[:60]!r}"
            ) from None
        return Call(own, (ended - began) / 1000, *rest[:2])

    def _cycles(self, sleep_us: float) -> int:
        device = self._problem.device
        return int(sleep_us * device.cycles_per_us) if isinstance(device, Cuda) else 0

    def _ask(self, request: bytes, limit_s: float, during: str) -> bytes:
        try:
            self._started.control.send(request)
        except OSError:
            self._crash(during)
        return self._answer(limit_s, during)

    def stop(self) -> None:
        """Every thread of the process is stopped; Fault when it has ended instead.

        Its threads are asleep by then, if they are no worse than OpenMP's: a thread that is stopped while it
        runs shares a core with the main thread for milliseconds when both are let go at once.
        """
        if self._status is not None:
            self._crash("between two calls")
        wait_until_quiet(_QUIET_S, self._process)
        os.kill(self._process, signal.SIGSTOP)
        _, status = os.waitpid(self._process, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._status = status
            self._crash("between two calls")

    def close(self) -> None:
        """The process and everything below it is dead. Closing twice is once."""
        if self._closed:
            return
        self._closed = True
        if self._status is None:
            os.kill(self._process, signal.SIGKILL)
            self._status = os.waitpid(self._process, 0)[1]
        kill_descendants(os.getpid(), self._spare)
        self._started.close()

    def _answer(self, limit_s: float, during: str) -> bytes:
        deadline = time.monotonic() + limit_s
        control = self._started.control
        while not select.select([control], [], [], min(_SAMPLE_S, limit_s))[0]:
            self._look_at_memory(during)
            self._check_device_memory(during)
            if time.monotonic() > deadline:
                raise Fault(
                    kind="timed_out", stage="run", limit_s=limit_s,
                    message=f"stopped after {limit_s:g} s {during}: one call may take no longer (an endless loop?)",
                )  # fmt: skip
        try:
            answer = control.recv(8192)
        except ConnectionResetError:
            answer = b""
        if not answer:
            self._crash(during)
        return answer

    def _look_at_memory(self, during: str) -> None:
        """Fault when the process holds more than it may; the address space limit is wider than that."""
        self._peak_mb = (resident_peak(self._process) - self._arena.host_bytes) // _MIB - (self._at_rest_mb or 32)
        if self._peak_mb > self._problem.memory_mb:
            raise starved(self._problem.memory_mb, during, "")

    def _check_device_memory(self, during: str) -> None:
        """Fault when the process has taken more of the device's memory than it may."""
        device = self._problem.device
        if not self._device_free or not isinstance(device, Cuda):
            return
        taken_mb = (self._device_free - device.foreign_free_bytes()) // _MIB
        if taken_mb > self._problem.gpu_memory_mb:
            raise Fault(
                kind="crashed", signal="out_of_memory",
                message=f"the program took {taken_mb} MiB of the device's memory {during}: it may take "
                f"{self._problem.gpu_memory_mb} MiB beside the tensors",
            )  # fmt: skip

    def _check_children(self, during: str) -> None:
        left = {pid for pid in descendants(os.getpid()) - self._spare - {self._process} if alive(pid)}
        left -= self._started.keepers
        if left:
            raise Fault(
                kind="rejected", reason="left_process",
                message=f"{len(left)} process(es) started by the program were still running when the call {during} "
                "had returned; a kernel may start threads but no processes",
            )  # fmt: skip

    def _complaint(self, answer: bytes, during: str) -> Fault:
        """The verdict on an exception that the program's own code raised, as its process told it."""
        kind, _, text = answer[1:].decode(errors="replace").partition("\n")
        return raised(kind, text, during, self._problem)

    def _crash(self, during: str) -> None:
        """Raises the Fault that says how the process ended."""
        if self._status is None:
            self._status = os.waitpid(self._process, 0)[1]
        log = self._started.log
        size = os.lseek(log, 0, os.SEEK_END)
        tail = os.pread(log, _TAIL, max(0, size - _TAIL)).decode(errors="replace").strip()
        raise crash(self._status, (self._peak_mb, self._problem.memory_mb), tail, during)
