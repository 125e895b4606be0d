"""A candidate's process as the trusted process uses it: loaded, called, and stopped between calls."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from tasks.arena import Arena
from tasks.candidate import AWAKEN, LOAD, NOTHING
from tasks.confined import Confined, Launch
from tasks.faults import Fault, crash, forged, left, rejected, restless, starved
from tasks.problem import Load, Problem

_START_S = 20.0
_LOG_BYTES = 1 << 20
_SAMPLE_S = 0.05
"""How often the memory and the processes of a call that takes long are looked at."""
_SOME_PROCESSES = 32
"""More than these are not waited for."""
_SOME_CALLS = 6
"""Threads that run on after more than half of the calls, and of these at least, were not just slow to fall asleep."""
_TRIALS = 9
_MIB = 1 << 20
_INTERPRETER_MIB = 32
_THREAD_MIB = 136
"""Address space that one more thread reserves: its stack and a malloc arena."""
_TOP_PAD_MIB = 320
"""Address space of malloc's padding (see GLIBC_TUNABLES) and of OpenMP's own library."""
_SCRIPT = Path(__file__).with_name("candidate.py")


@dataclass(frozen=True)
class Call:
    """One call of the entry point, on both clocks."""

    own_us: float
    wall_us: float


class Runner:
    """One candidate process; between calls it is stopped (SIGSTOP) and nothing of it runs."""

    def __init__(self, problem: Problem, arena: Arena, folder: str) -> None:
        self._problem = problem
        self._arena = arena
        self._order = list(problem.loads)
        self._peak_mb = 0
        self._calls = 0
        self._busy = 0
        """Calls after which threads ran on."""
        self.reply_us = 0.0
        """What a reply costs on the wall clock beyond the call itself."""
        environment = _environment()
        launch = Launch(_SCRIPT, ("{control}",), Path(folder), environment, (arena.fd,))
        self._process = Confined(launch)

    @property
    def enclosure(self) -> tuple[str, ...]:
        """What keeps the process from the rest of the machine."""
        return self._process.enclosure

    def load(self, library: str) -> None:
        """The shared object is loaded, its entry point found, and the process is stopped; otherwise Fault."""
        during = "while it was being loaded"
        setup = {
            "arena": self._arena.fd,
            "size": self._arena.size,
            "memory": self._allowance() * _MIB,
            "file_size": _LOG_BYTES,
            "library": library,
            "entry_point": self._problem.entry_point,
            "calls": [self._layout(name) for name in self._order],
        }
        self._ask(json.dumps(setup).encode(), during, _START_S)
        self.reply_us = median(self._trial(during) for _ in range(_TRIALS))
        answer = self._ask(LOAD, during, _START_S).decode(errors="replace")
        if answer != "ready":
            raise Fault(kind="compile_error", message=f"the shared object {answer}")
        self.stop()
        self._check_children("after it was loaded")

    def _trial(self, during: str) -> float:
        began = time.perf_counter_ns()
        own = int(self._ask(NOTHING, during))
        return (time.perf_counter_ns() - began - own) / 1000

    def _layout(self, name: str) -> dict[str, Any]:
        load = self._problem.loads[name]
        offsets = self._arena.offsets[name]
        return {
            "offsets": [offsets[spec.name] for spec in (*load.inputs, *load.outputs)],
            "dims": [load.dims[dim] for dim in self._problem.dims],
        }

    def _allowance(self) -> int:
        threads = int(os.environ["OMP_NUM_THREADS"])
        return self._problem.memory_mb + threads * _THREAD_MIB + _TOP_PAD_MIB

    def call(self, workload: str) -> Call:
        """The entry point has run once on the arena's contents, and the process is stopped again.

        The outputs are those of the moment of its reply. Raises Fault: crashed, timed out, or a broken rule.
        """
        during = f"on workload {workload!r}"
        load = self._problem.loads[workload]
        self._check_stillness()
        self._process.resume()
        if self._ask(AWAKEN, during) != AWAKEN:
            raise forged(during)
        self._arena.complete()
        began = time.perf_counter_ns()
        answer = self._ask(b"%d" % self._order.index(workload), during)
        ended = time.perf_counter_ns()
        self._arena.keep(load)
        self.stop()
        self._check_children(during)
        self._check_replies(during)
        self._check_outputs(load, during)
        return _call(answer, (ended - began) / 1000, during)

    def _ask(self, request: bytes, during: str, limit_s: float | None = None) -> bytes:
        try:
            self._process.control.send(request)
        except OSError:
            self._crash(during)
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
            raise rejected(
                "busy_after_return",
                f"threads of the program were still running long after the call had returned, {self._busy} times out "
                f"of {self._calls}: the work must be done, and its threads asleep, when the entry point returns",
            )  # fmt: skip

    def close(self) -> None:
        """The process and everything below it is dead."""
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
        self._peak_mb = (self._process.resident_peak() - self._arena.size) // _MIB - _INTERPRETER_MIB
        if self._peak_mb > self._problem.memory_mb:
            raise starved(self._problem.memory_mb, during, "")

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


def _call(answer: bytes, wall_us: float, during: str) -> Call:
    """What the reply claims, if it can be true."""
    try:
        own_us = int(answer[:20]) / 1000
    except ValueError:
        raise forged(during) from None
    if not 0 < own_us <= wall_us:
        raise rejected(
            "clock_mismatch",
            f"the program's process reported {own_us:g} us {during}, which took {wall_us:g} us on the wall clock",
        )  # fmt: skip
    return Call(own_us, wall_us)


def _environment() -> dict[str, str]:
    """What the candidate may know: how many threads, and malloc's settings (the baseline's own)."""
    kept = {key: os.environ[key] for key in os.environ if key.startswith(("OMP_", "GOMP_", "GLIBC_", "KSEARCH_MARK"))}
    return {**kept, "PATH": "/usr/bin:/bin", "LC_ALL": "C"}
