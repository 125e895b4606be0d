"""g++ in a process group of its own: a shared object, or a verdict that says what the coder did wrong."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from state.verdict import CompileError, TimedOut
from tasks.task import Task

SOURCE = "kernel.cpp"
_MEMORY_KIB = 6 << 20
_SHOWN_ERRORS = 6
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
_EXTENSIONS = {
    "__SSE4_2__": "SSE4.2", "__AVX__": "AVX", "__AVX2__": "AVX2", "__FMA__": "FMA", "__F16C__": "F16C",
    "__AVX512F__": "AVX512F", "__AVX512BW__": "AVX512BW", "__AVX512VL__": "AVX512VL", "__AVX512VNNI__": "AVX512VNNI",
    "__AVXVNNI__": "AVXVNNI", "__AVX512BF16__": "AVX512BF16", "__AVX512FP16__": "AVX512FP16",
    "__AMX_TILE__": "AMX-TILE", "__AMX_INT8__": "AMX-INT8", "__AMX_BF16__": "AMX-BF16",
    "__ARM_NEON": "NEON", "__ARM_FEATURE_DOTPROD": "DOTPROD", "__ARM_FEATURE_MATMUL_INT8": "I8MM",
    "__ARM_FEATURE_BF16": "BF16", "__ARM_FEATURE_SVE": "SVE", "__VSX__": "VSX", "__riscv_vector": "RVV",
}  # fmt: skip


class ToolMissing(RuntimeError):
    """The compiler cannot be used on this machine; the message says what to install or change."""


@dataclass(frozen=True)
class Compiler:
    """A working g++ for one -march value."""

    path: str
    march: str
    version: str
    isa: str
    """The -march value and the vector extensions that it turns on."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Everything that changes the code that is made; only a program that uses OpenMP loads libgomp."""
        return ("-std=c++17", "-O3", f"-march={self.march}", "-fopenmp", "-shared", "-fPIC", "-Wl,--as-needed")


@functools.cache
def find_compiler(march: str) -> Compiler:
    """The machine's g++; ToolMissing when there is none or when it does not know the -march value."""
    path = shutil.which("g++")
    if path is None:
        raise ToolMissing("g++ was not found: install it (Debian: apt install g++; Fedora: dnf install gcc-c++)")
    command = [path, f"-march={march}", "-fopenmp", "-dM", "-E", "-x", "c++", os.devnull]
    probe = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    if probe.returncode:
        raise ToolMissing(f"g++ does not accept -march={march}: {probe.stderr.strip().splitlines()[0]}")
    macros = set(re.findall(r"^#define (\w+)", probe.stdout, re.MULTILINE))
    names = [name for macro, name in _EXTENSIONS.items() if macro in macros]
    version = subprocess.run([path, "-dumpfullversion"], capture_output=True, text=True, check=False)
    return Compiler(path, march, f"g++ {version.stdout.strip()}", f"-march={march}: {' '.join(names) or 'baseline'}")


@dataclass(frozen=True)
class Build:
    """A finished shared object."""

    library: Path
    seconds: float


def build(compiler: Compiler, task: Task, source: str, folder: Path) -> Build | CompileError | TimedOut:
    """The shared object of a source text, in a folder that must be empty or absent."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / SOURCE).write_text(source, encoding="utf-8")
    library = folder / "kernel.so"
    began = time.monotonic()
    options = ("-Wl,-z,defs", "-fdiagnostics-color=never", f"-fmax-errors={_SHOWN_ERRORS}")
    command = [compiler.path, *compiler.flags, *options, SOURCE, "-o", library.name]
    status, errors = _guarded(command, folder, task.limits.compile_s)
    seconds = time.monotonic() - began
    if status is None:
        limit = task.limits.compile_s
        message = f"the compiler was stopped after {limit:g} s (deep templates, or too much unrolling?)"
        return TimedOut(stage="compile", limit_s=limit, message=message)
    if status != 0 or not library.exists():
        return CompileError(message=clip(errors, folder) or f"g++ ended with status {status} and said nothing")
    missing = _missing_entry(task, library)
    return CompileError(message=missing) if missing else Build(library, seconds)


def _guarded(command: list[str], folder: Path, limit_s: float) -> tuple[int | None, str]:
    """Exit status and standard error; None for the status when it was killed at the limit.

    The whole process group dies with this process, or when it stops caring.
    """
    watched, lifeline = os.pipe()
    log = folder / "compiler.log"
    try:
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "sh", str(_MEMORY_KIB), *command],
                stdin=watched, stdout=subprocess.DEVNULL, stderr=file, cwd=folder, env=_environment(),
                start_new_session=True,
            )  # fmt: skip
        try:
            status: int | None = process.wait(limit_s)
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


def _environment() -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "TMPDIR", "LD_LIBRARY_PATH") if key in os.environ}
    return {**kept, "LC_ALL": "C"}


def clip(errors: str, folder: Path) -> str:
    """The first errors of a compiler, each with the lines that explain it, and without this machine's paths."""
    text = errors.replace(f"{folder}/", "").strip()
    text = re.sub(r"\S*/ccache/\S*|/tmp/cc\w+\.o", "kernel.o", text)
    blocks = re.split(r"\n(?=\S+?:(?:\d+:\d+:|\(\.text| in function| error))", text)
    wanted = [block for block in blocks if re.search(r"error|undefined|fatal|out of memory|Killed", block)]
    clipped = "\n".join(wanted[:_SHOWN_ERRORS] or [text])
    if len(clipped) > _SHOWN_CHARACTERS:
        clipped = clipped[:_SHOWN_CHARACTERS].rsplit("\n", 1)[0] + "\n[...]"
    return clipped


def _missing_entry(task: Task, library: Path) -> str:
    """Why the entry point cannot be called; empty when it can, or when there is no nm to ask."""
    nm = shutil.which("nm")
    if nm is None:
        return ""
    listing = subprocess.run([nm, "-D", "--defined-only", str(library)], capture_output=True, text=True, check=False)
    symbols = {line.split()[-1] for line in listing.stdout.splitlines() if line.strip()}
    name = task.entry_point
    if name in symbols:
        return ""
    wanted = f"the program must define\n  {task.prototype()}"
    if any(re.match(rf"_Z(\d+|N.*?){name}", symbol) for symbol in symbols):
        return f'{name} is defined with C++ linkage: put extern "C" before it; {wanted}'
    return f"the entry point {name} is not defined; {wanted}"
