"""A candidate's process as the trusted process holds it: stopped, resumed for each call, ended with all it left."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.arena import Arena
from tasks.candidate import AWAKEN
from tasks.isolation import alive, descendants, kill_descendants, resident_peak, wait_until_quiet
from tasks.problem import Problem

_START_S = 20.0
_LOG_BYTES = 1 << 20
_TAIL = 1500
_QUIET_S = 0.02
_SAMPLE_S = 0.05
"""How often the memory of a call that takes long is looked at."""
_MIB = 1 << 20
_INTERPRETER_MIB = 32
_THREAD_MIB = 136
"""Address space that one more thread reserves: its stack and a malloc arena."""
_TOP_PAD_MIB = 320
"""Address space of malloc's padding (see GLIBC_TUNABLES) and of OpenMP's own library."""
_SCRIPT = Path(__file__).with_name("candidate.py")


class Fault(Exception):
    """The evaluation ends here with a verdict other than passed; carries the verdict's plain fields."""

    def __init__(self, **verdict: Any) -> None:
        super().__init__(verdict["message"])
        self.verdict = verdict


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
        self._spare = frozenset(descendants(os.getpid()))
        self._log = os.memfd_create("ksearch-log", os.MFD_CLOEXEC)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-I", "-S", str(_SCRIPT), str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log, cwd=folder,
                env=_environment(folder), pass_fds=(theirs.fileno(), arena.fd), start_new_session=True,
            )  # fmt: skip
        self._status: int | None = None
        self._peak_mb = 0

    def load(self, library: str) -> None:
        """The shared object is loaded, its entry point found, and the process is stopped; otherwise Fault."""
        setup = {
            "arena": self._arena.fd,
            "size": self._arena.size,
            "memory": self._allowance() * _MIB,
            "file_size": _LOG_BYTES,
            "library": library,
            "entry_point": self._problem.entry_point,
            "calls": [self._layout(name) for name in self._order],
        }
        try:
            self._control.send(json.dumps(setup).encode())
        except OSError:
            self._crash("while it was being loaded")
        answer = self._answer(_START_S, "while it was being loaded").decode(errors="replace")
        if not answer.startswith("ready"):
            raise Fault(kind="compile_error", message=f"the shared object {answer}")
        self.stop()
        self._check_children("after it was loaded")

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

        Raises Fault: crashed, timed out, or a process left behind.
        """
        during = f"on workload {workload!r}"
        os.kill(self._process.pid, signal.SIGCONT)
        self._ask(AWAKEN, during)
        began = time.perf_counter_ns()
        answer = self._ask(b"%d" % self._order.index(workload), during)
        ended = time.perf_counter_ns()
        self.stop()
        self._check_children(during)
        try:
            own = int(answer)
        except ValueError:
            raise Fault(
                kind="rejected", reason="clock_mismatch", message=f"the reply {during} was forged: {answer[:60]!r}"
            ) from None
        return Call(own / 1000, (ended - began) / 1000)

    def _ask(self, request: bytes, during: str) -> bytes:
        try:
            self._control.send(request)
        except OSError:
            self._crash(during)
        return self._answer(self._problem.call_s, during)

    def stop(self) -> None:
        """Every thread of the process is stopped; Fault when it has ended instead.

        Its threads are asleep by then, if they are no worse than OpenMP's: a thread that is stopped while it
        runs shares a core with the main thread for milliseconds when both are let go at once.
        """
        if self._status is not None:
            self._crash("between two calls")
        wait_until_quiet(_QUIET_S, self._process.pid)
        os.kill(self._process.pid, signal.SIGSTOP)
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            self._record(status)
            self._crash("between two calls")

    def close(self) -> None:
        """The process and everything below it is dead."""
        self._reap()
        kill_descendants(os.getpid(), self._spare)
        self._control.close()
        os.close(self._log)

    def _answer(self, limit_s: float, during: str) -> bytes:
        deadline = time.monotonic() + limit_s
        while not select.select([self._control], [], [], min(_SAMPLE_S, limit_s))[0]:
            self._look_at_memory(during)
            if time.monotonic() > deadline:
                raise Fault(
                    kind="timed_out", stage="run", limit_s=limit_s,
                    message=f"stopped after {limit_s:g} s {during}: one call may take no longer (an endless loop?)",
                )  # fmt: skip
        try:
            answer = self._control.recv(8192)
        except ConnectionResetError:
            answer = b""
        if not answer:
            self._crash(during)
        return answer

    def _look_at_memory(self, during: str) -> None:
        """Fault when the process holds more than it may; the address space limit is wider than that."""
        self._peak_mb = (resident_peak(self._process.pid) - self._arena.size) // _MIB - _INTERPRETER_MIB
        if self._peak_mb > self._problem.memory_mb:
            raise _starved(self._problem.memory_mb, during, "")

    def _check_children(self, during: str) -> None:
        left = {pid for pid in descendants(os.getpid()) - self._spare - {self._process.pid} if alive(pid)}
        if left:
            raise Fault(
                kind="rejected", reason="left_process",
                message=f"{len(left)} process(es) started by the program were still running when the call {during} "
                "had returned; a kernel may start threads but no processes",
            )  # fmt: skip

    def _reap(self) -> None:
        """The process is dead."""
        if self._status is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._record(os.waitpid(self._process.pid, 0)[1])

    def _record(self, status: int) -> None:
        self._status = status
        self._process.returncode = os.waitstatus_to_exitcode(status)

    def _crash(self, during: str) -> None:
        """Raises the Fault that says how the process ended."""
        if self._status is None:
            self._record(os.waitpid(self._process.pid, 0)[1])
        assert self._status is not None
        size = os.lseek(self._log, 0, os.SEEK_END)
        tail = os.pread(self._log, _TAIL, max(0, size - _TAIL)).decode(errors="replace").strip()
        raise crash(self._status, self._peak_mb, self._problem.memory_mb, tail, during)


_HINTS = {
    "SIGSEGV": "an access outside of mapped memory: a null pointer, an index out of range or a stack overflow",
    "SIGILL": "an instruction that this processor lacks (check the ISA), or __builtin_trap / unreachable code",
    "SIGFPE": "an integer division by zero or an overflowing integer division",
    "SIGBUS": "an access to memory that cannot be there",
    "SIGABRT": "abort, a failed assertion or an uncaught C++ exception",
}


def crash(status: int, peak_mb: int, limit_mb: int, tail: str, during: str) -> Fault:
    """The verdict on a process that ended by itself, from its wait status, peak memory (MiB) and last words."""
    said = f"\nLast output of the program:\n{tail}" if tail else ""
    starved = any(word in tail for word in ("bad_alloc", "Out of memory", "Cannot allocate", "Thread creation failed"))
    if starved or (os.WIFSIGNALED(status) and peak_mb > 0.6 * limit_mb):
        return _starved(limit_mb, during, said)
    if os.WIFEXITED(status):
        return Fault(
            kind="crashed", signal="exit",
            message=f"the program ended its process with exit({os.WEXITSTATUS(status)}) {during} "
            f"instead of returning from the entry point{said}",
        )  # fmt: skip
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
    if number == signal.SIGSEGV:
        said = f" (or an allocation that failed: the limit is {limit_mb} MiB){said}"
    hint = f": {_HINTS[name]}" if name in _HINTS else ""
    return Fault(kind="crashed", signal=name, message=f"{name} {during}{hint}{said}")


def _starved(limit_mb: int, during: str, said: str) -> Fault:
    return Fault(
        kind="crashed", signal="out_of_memory",
        message=f"the program ran out of memory {during}: it may use {limit_mb} MiB beside the tensors{said}",
    )  # fmt: skip


def _environment(folder: str) -> dict[str, str]:
    """What the candidate may know: how many threads, and malloc's settings (the baseline's own)."""
    kept = {key: os.environ[key] for key in os.environ if key.startswith(("OMP_", "GOMP_", "GLIBC_", "KSEARCH_MARK"))}
    return {**kept, "PATH": "/usr/bin:/bin", "HOME": folder, "TMPDIR": folder, "LC_ALL": "C"}
