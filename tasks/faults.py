"""The verdicts other than passed, as the trusted process reaches them. Standard library only."""

from __future__ import annotations

import os
import re
import signal
from typing import Any


class Fault(Exception):
    """The evaluation ends here with a verdict other than passed; carries the verdict's plain fields."""

    def __init__(self, **verdict: Any) -> None:
        super().__init__(verdict["message"])
        self.verdict = verdict


def rejected(reason: str, message: str) -> Fault:
    """The program broke a rule."""
    return Fault(kind="rejected", reason=reason, message=message)


def forged(during: str) -> Fault:
    """There were messages that the program's process was not asked for."""
    return rejected("forged_reply", f"messages that only the process around the program may send were sent {during}")


def restless() -> Fault:
    """The process did not stop, or did not stay so."""
    return rejected("ran_while_stopped", "the program went on running where it had been stopped (SIGSTOP)")


def busy_after_return(busy: int, calls: int) -> Fault:
    """Threads ran on after too many calls."""
    return rejected(
        "busy_after_return",
        f"threads of the program were still running long after the call had returned, {busy} times out of {calls}: "
        "the work must be done, and its threads asleep, when the entry point returns",
    )


def left(count: int, during: str) -> Fault:
    """The program has started processes."""
    return rejected(
        "left_process",
        f"{count} process(es) started by the program were still running when the call {during} had returned, or were "
        "too many; a kernel may start threads but no processes",
    )  # fmt: skip


def misshapen(answer: bytes, workload: str) -> Fault:
    """What the entry point returned is not what it should return, as its process told it."""
    text = answer[1:].decode(errors="replace")
    return Fault(kind="wrong_result", reason="shape", workload=workload, message=f"{text}, on workload {workload!r}")


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
    failed = any(word in tail for word in ("bad_alloc", "Out of memory", "Cannot allocate", "Thread creation failed"))
    if failed or (os.WIFSIGNALED(status) and peak_mb > 0.6 * limit_mb):
        return starved(limit_mb, during, said)
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


def starved(limit_mb: int, during: str, said: str) -> Fault:
    """The program has used up its memory."""
    return Fault(
        kind="crashed", signal="out_of_memory",
        message=f"the program ran out of memory {during}: it may use {limit_mb} MiB beside the tensors{said}",
    )  # fmt: skip


def raised(answer: bytes, limit_mb: int, during: str) -> Fault:
    """The verdict on an exception of the program's own code, as its process told it: type, message and places."""
    kind, _, text = answer[1:].decode(errors="replace").partition("\n")
    if kind == "OutOfMemoryError" or "out of memory" in text:
        return starved(limit_mb, during, f"\n{text}")
    named = re.search(r"CUDA_ERROR_\w+", text) or re.search(r"CUDA error: ([^\n]+)", text)
    if named:
        return Fault(kind="crashed", signal="device_error", message=f"{named.group()} {during}\n{text}")
    return Fault(kind="crashed", signal="exception", message=f"{kind} {during}: {text}")
