"""A compiler in a process group of its own, with limits, and its words for coders. Standard library only."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

SHOWN_ERRORS = 6
_SHOWN_CHARACTERS = 3500
_GUARD = """
exec 3<&0 0</dev/null
ulimit -v "$1"; ulimit -c 0; shift
(read -r _ <&3; kill -KILL 0) &
guard=$!
"$@" 3<&-
status=$?
kill -KILL $guard
exit $status
"""
"""Shell that runs a command and kills its whole process group when the pipe on its standard input is closed."""
_KEPT = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME")


class ToolMissing(RuntimeError):
    """A compiler cannot be used on this machine; the message says what to install or change."""


@dataclass(frozen=True)
class Limits:
    """What one run of a compiler may take."""

    seconds: float
    memory_kib: int = 6 << 20


@dataclass(frozen=True)
class Build:
    """A finished program, ready to be loaded by a candidate's process."""

    path: str
    form: str
    """How it is loaded: "c", "python", "tvm-ffi" or "torch"."""
    seconds: float
    notes: str = ""
    """What the compiler reported that a coder can use: registers, spills, shared memory."""


@dataclass(frozen=True)
class Unbuilt:
    """There is nothing to load: the plain fields of a CompileError or TimedOut say why."""

    verdict: dict[str, object]
    seconds: float


def compile_error(message: str, began: float) -> Unbuilt:
    """An Unbuilt for a compiler that refused the program."""
    return Unbuilt({"kind": "compile_error", "message": message}, time.monotonic() - began)


def out_of_time(limit_s: float) -> Unbuilt:
    """An Unbuilt for a compiler that was stopped at its limit."""
    message = f"the compiler was stopped after {limit_s:g} s (deep templates, or too much unrolling?)"
    return Unbuilt({"kind": "timed_out", "stage": "compile", "limit_s": limit_s, "message": message}, limit_s)


def environment() -> dict[str, str]:
    """What a compiler is told of this machine: no secrets."""
    return {**{key: os.environ[key] for key in _KEPT if key in os.environ}, "LC_ALL": "C"}


def run(command: list[str], folder: Path, limits: Limits) -> tuple[int | None, str]:
    """Exit status and standard error; None for the status when it was killed at the limit.

    The whole process group dies with this process, or when it stops caring.
    """
    watched, lifeline = os.pipe()
    log = folder / "compiler.log"
    try:
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", str(limits.memory_kib), *command],
                stdin=watched, stdout=file, stderr=file, cwd=folder, env=environment(),
                start_new_session=True,
            )  # fmt: skip
        try:
            status: int | None = process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    finally:
        os.close(watched)
        os.close(lifeline)
    with log.open("rb") as file:
        return status, file.read(1 << 18).decode(errors="replace")


def clip(errors: str, folder: Path) -> str:
    """The first errors of a compiler, each with the lines that explain it, and without this machine's paths."""
    text = errors.replace(f"{folder}/", "").strip()
    text = re.sub(r"\S*/ccache/\S*|/tmp/cc\w+\.o|/tmp/tmpxft_\S+", "kernel.o", text)
    blocks = re.split(r"\n(?=\S+?(?::(?:\d+:\d+:|\(\.text| in function| error)|\(\d+\): ))", text)
    wanted = [block for block in blocks if re.search(r"error|undefined|fatal|out of memory|Killed", block)]
    clipped = "\n".join(wanted[:SHOWN_ERRORS] or [text])
    if len(clipped) > _SHOWN_CHARACTERS:
        clipped = clipped[:_SHOWN_CHARACTERS].rsplit("\n", 1)[0] + "\n[...]"
    return clipped
