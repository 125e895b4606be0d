"""A candidate's process as the trusted process uses it: loaded, called, and stopped between calls."""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext
from statistics import median
from typing import NoReturn

from tasks.arena import Arena
from tasks.call import Call, reported
from tasks.candidate import AWAKEN, LOAD, NOTHING
from tasks.confined import Confined
from tasks.device import Cuda
from tasks.driver import DeviceSick
from tasks.faults import Fault, busy_after_return, crash, forged, left, raised, rejected, restless, starved
from tasks.handing import KEPT
from tasks.launcher import Launcher
from tasks.layouts import Handovers, calls
from tasks.problem import Load, Problem
from tasks.tool import Build

_START_S = 20.0
_FIRST_S = 10.0
"""How much longer the first call of a compiled program may take: kernels are loaded, exceptions put in words."""
_LOG_BYTES = 1 << 20
_WATCHED_S = 0.02
_SAMPLE_S = 0.05
"""How often the memory and the processes of a call that takes long are looked at."""
_SOME_PROCESSES = 32
"""More than these are not waited for."""
_SOME_CALLS = 6
"""Threads that run on after more than half of the calls, and of these at least, were not just slow to fall asleep."""
_TRIALS = 12
_MIB = 1 << 20
_INTERPRETER_MIB = 32
_THREAD_MIB = 136
"""Address space that one more thread reserves: its stack and a malloc arena."""
_TOP_PAD_MIB = 320
"""Address space of malloc's padding (see GLIBC_TUNABLES) and of OpenMP's own library."""


class Runner:
    """One candidate process; between calls it is stopped (SIGSTOP) and nothing of it runs."""

    def __init__(self, problem: Problem, arena: Arena, launcher: Launcher) -> None:
        """Raises DeviceSick when no process can be started."""
        self._problem = problem
        self._arena = arena
        self._uses_torch = launcher.uses_torch
        self._first_s = 0.0
        self._order = list(arena.offsets)
        self._peak_mb = 0
        self._at_rest_mb = _INTERPRETER_MIB
        self._device_free = 0
        self._called: set[str] = set()
        self._calls = 0
        self._busy = 0
        """Calls after which threads ran on."""
        self.reply_us = 0.0
        """What a reply costs on the wall clock beyond the call itself."""
        self.replies_vary_us = 0.0
        self._handovers = Handovers(problem, arena, self._ask, lambda: self._process.sent_ns)
        self._returned_mb = 0
        """Beside what the task allows: outputs that the program allocates itself."""
        if problem.call != "tensors":
            self._returned_mb = KEPT * max(problem.loads[name].written for name in self._order) // _MIB + 1
        self._process = Confined(launcher, arena.fds)

    @property
    def enclosure(self) -> tuple[str, ...]:
        """What keeps the process from the rest of the machine."""
        return self._process.enclosure

    @property
    def pid(self) -> int:
        """The candidate's process."""
        return self._process.pid

    def load(self, build: Build) -> None:
        """The program is loaded, its entry point found, and the process is stopped; otherwise Fault.

        Raises DeviceSick when the process cannot use the device although it has loaded nothing yet.
        """
        during = "while it was being loaded"
        setup = {
            "arena": self._arena.grant(),
            "memory": self._allowance() * _MIB,
            "file_size": self._problem.memory_mb * _MIB if self._uses_torch else _LOG_BYTES,
            "library": build.path,
            "form": build.form,
            "entry_point": self._problem.entry_point,
            **calls(self._problem, self._arena),
        }
        self._check_context(self._ask(json.dumps(setup).encode(), during, _START_S))
        with self._process.on_another_core() if self._problem.device.kind == "cpu" else nullcontext():
            trials = [self._trial(during) for _ in range(_TRIALS)][_TRIALS // 3 :]
        self.reply_us = median(trials)
        self.replies_vary_us = max(trials) - self.reply_us
        self._handovers.try_out(during)
        compiles_late = self._uses_torch and build.form == "python"
        if self._uses_torch:
            self._first_s = self._problem.compile_s if compiles_late else _FIRST_S
        limit = self._problem.compile_s + self._problem.call_s if compiles_late else _START_S
        answer = self._ask(LOAD, during, limit)
        if answer[:1] == b"!":
            raise raised(answer, self._memory_mb, during)
        if answer != b"ready":
            raise Fault(kind="compile_error", message=f"the shared object {answer.decode(errors='replace')}")
        self.stop()
        self._check_children("after it was loaded")

    def _check_context(self, answer: bytes) -> None:
        """Before any of the program's code ran, its process could use the device; otherwise DeviceSick."""
        if not self._uses_torch:
            return
        if answer != b"context":
            raise DeviceSick(f"a fresh process has {answer.decode(errors='replace')}")
        self._at_rest_mb = self._process.resident_peak() // _MIB
        if isinstance(self._problem.device, Cuda):
            self._device_free = self._problem.device.foreign_free_bytes()

    def _trial(self, during: str) -> float:
        """Microseconds that a reply costs, in the same order of messages as a call."""
        self._process.stop()
        self._arena.complete()
        self._process.resume()
        self._ask(AWAKEN, during)
        began = time.time_ns()
        own = int(self._ask(NOTHING, during).split()[0])
        return (self._process.sent_ns - began - own) / 1000

    def _allowance(self) -> int:
        threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        return self._problem.memory_mb + threads * _THREAD_MIB + _TOP_PAD_MIB

    @property
    def _memory_mb(self) -> int:
        on_device = self._problem.device.kind == "cuda"
        return self._returned_mb + (self._problem.gpu_memory_mb if on_device else self._problem.memory_mb)

    def call(self, workload: str, sleep_us: float = 0.0, cold: bool = False, watched: bool = False) -> Call:
        """The entry point has run once on the arena's contents, and the process is stopped again.

        The outputs are those of the moment of its reply. On a GPU its launches are hidden behind `sleep_us` of a
        sleeping kernel, and `cold` caches are flushed first; without that nothing of this process uses the device
        between the awakening and the reply. A `watched` call's reply is seen at once, on a core that does not sleep.
        Raises Fault: crashed, timed out, or a broken rule.
        """
        during = f"on workload {workload!r}"
        load = self._problem.loads[workload]
        limit = self._problem.call_s
        if workload not in self._called:
            limit += self._first_s
        self._called.add(workload)
        index = b"%d" % self._order.index(workload)
        self._check_stillness()
        bare = self._problem.device.kind == "cuda" and not cold
        if bare:
            self._arena.complete()
        self._process.resume()
        if self._ask(AWAKEN + b" " + index if self._uses_torch else AWAKEN, during) != AWAKEN:
            raise forged(during)
        if not bare:
            self._arena.complete()
        request = b"%d %d" % (self._cycles(sleep_us), cold) if self._uses_torch else index
        began = time.time_ns()
        answer = self._ask(request, during, limit, watched)
        ended = self._process.sent_ns
        if answer[:1] == b"!":
            raise raised(answer, self._memory_mb, during)
        more_us = self._handovers.take(workload, during, self.reply_us)
        self._arena.keep(load)
        self.stop()
        self._check_children(during)
        self._check_replies(during)
        self._check_device_memory(during)
        self._check_outputs(load, during)
        return reported(answer, (ended - began) / 1000, during, more_us)

    def _cycles(self, sleep_us: float) -> int:
        device = self._problem.device
        return int(sleep_us * device.cycles_per_us) if isinstance(device, Cuda) else 0

    def _ask(self, request: bytes, during: str, limit_s: float | None = None, watched: bool = False) -> bytes:
        try:
            self._process.control.send(request)
        except OSError:
            self._crash(during)
        until = time.monotonic() + _WATCHED_S if watched else 0.0
        while time.monotonic() < until and not self._process.has_spoken:
            pass
        return self._answer(limit_s or self._problem.call_s, during)

    def stop(self) -> None:
        """Every thread of the process is stopped; Fault when it has ended instead, or cannot be stopped."""
        self._calls += 1
        state = self._process.stop()
        self._busy += state == "busy"
        if state == "ended":
            self._crash("between two calls")
        if state == "unstoppable":
            raise restless()
        if self._busy >= _SOME_CALLS and 2 * self._busy > self._calls:
            raise busy_after_return(self._busy, self._calls)

    def close(self) -> None:
        """The process and everything below it is dead. Closing twice is once."""
        self._process.end()

    def _answer(self, limit_s: float, during: str) -> bytes:
        deadline = time.monotonic() + limit_s
        while True:
            try:
                answer = self._process.receive(min(_SAMPLE_S, limit_s))
            except TimeoutError:
                self._look(during)
                if time.monotonic() > deadline:
                    raise Fault(
                        kind="timed_out", stage="run", limit_s=limit_s,
                        message=f"stopped after {limit_s:g} s {during}: one call may take no longer (an endless loop?)",
                    ) from None  # fmt: skip
                continue
            if not answer:
                self._crash(during)
            return answer

    def _look(self, during: str) -> None:
        """Fault when there is more of the program than may be; the address space limit is wider than that."""
        others = self._process.others()
        if len(others) > _SOME_PROCESSES:
            raise left(len(others), during)
        self._peak_mb = (self._process.resident_peak() - self._arena.host_bytes) // _MIB - self._at_rest_mb
        if self._peak_mb > self._problem.memory_mb + self._returned_mb:
            raise starved(self._problem.memory_mb, during, "")
        self._check_device_memory(during)

    def _check_device_memory(self, during: str) -> None:
        device = self._problem.device
        if not self._device_free or not isinstance(device, Cuda):
            return
        taken_mb = (self._device_free - device.foreign_free_bytes()) // _MIB
        if taken_mb > self._problem.gpu_memory_mb + self._returned_mb:
            raise starved(self._problem.gpu_memory_mb, during, f" and took {taken_mb} MiB of the device's")

    def _check_stillness(self) -> None:
        if self._process.kept_still:
            return
        if self._process.status is not None:
            self._crash("between two calls")
        raise restless()

    def _check_replies(self, during: str) -> None:
        if self._process.has_spoken:
            raise forged(during)

    def _check_children(self, during: str) -> None:
        if others := self._process.others():
            raise left(len(others), during)

    def _check_outputs(self, load: Load, during: str) -> None:
        changed = self._arena.changed(load)
        if changed is not None:
            raise rejected(
                "unfinished_work",
                f"the program still wrote to its output {changed!r} after the call {during} had returned; all work "
                "must be done by then",
            )  # fmt: skip

    def _crash(self, during: str) -> NoReturn:
        """Raises the Fault that says how the process ended."""
        if not self._process.has_ended():
            raise rejected(
                "broken_channel", f"the program closed a descriptor that is not its own, the control socket, {during}"
            )
        status = self._process.status
        assert status is not None
        raise crash(status, self._peak_mb, self._problem.memory_mb, self._process.last_words(), during)
