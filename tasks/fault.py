"""Verdicts on candidates that did not do what they should, in words for a coder. Standard library only."""

from __future__ import annotations

import os
import re
import signal
from typing import Any

from tasks.problem import Problem


class Fault(Exception):
    """The evaluation ends here with a verdict other than passed; carries the verdict's plain fields."""

    def __init__(self, **verdict: Any) -> None:
        super().__init__(verdict["message"])
        self.verdict = verdict


_HINTS = {
    "SIGSEGV": "an access outside of mapped memory: a null pointer, an index out of range or a stack overflow",
    "SIGILL": "an instruction that this processor lacks (check the ISA), or __builtin_trap / unreachable code",
    "SIGFPE": "an integer division by zero or an overflowing integer division",
    "SIGBUS": "an access to memory that cannot be there",
    "SIGABRT": "abort, a failed assertion or an uncaught C++ exception",
}


def crash(status: int, memory_mb: tuple[int, int], tail: str, during: str) -> Fault:
    """The verdict on a process that ended by itself, from its wait status, memory (peak and limit) and last words."""
    peak_mb, limit_mb = memory_mb
    said = f"\nLast output of the program:\n{tail}" if tail else ""
    short = any(word in tail for word in ("bad_alloc", "Out of memory", "Cannot allocate", "Thread creation failed"))
    if short or (os.WIFSIGNALED(status) and peak_mb > 0.6 * limit_mb):
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
    """The verdict on a program that used more memory than it may."""
    return Fault(
        kind="crashed", signal="out_of_memory",
        message=f"the program ran out of memory {during}: it may use {limit_mb} MiB beside the tensors{said}",
    )  # fmt: skip


def raised(kind: str, text: str, during: str, problem: Problem) -> Fault:
    """The verdict on an exception that reached the process's main loop: its type, and its message with places."""
    if kind == "OutOfMemoryError" or "out of memory" in text:
        limit = problem.gpu_memory_mb if problem.device.kind == "cuda" else problem.memory_mb
        return Fault(
            kind="crashed", signal="out_of_memory",
            message=f"the program ran out of memory {during}: it may use {limit} MiB beside the tensors\n{text}",
        )  # fmt: skip
    named = re.search(r"CUDA_ERROR_\w+", text) or re.search(r"CUDA error: ([^\n]+)", text)
    if named:
        return Fault(kind="crashed", signal="device_error", message=f"{named.group()} {during}\n{text}")
    return Fault(kind="crashed", signal="exception", message=f"{kind} {during}: {text}")
