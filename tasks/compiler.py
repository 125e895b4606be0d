"""g++: a shared object with a plain C entry point, or what the coder did wrong. Standard library only."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tasks.tool import (
    SHOWN_ERRORS,
    Build,
    Limits,
    ToolMissing,
    Unbuilt,
    clip,
    compile_error,
    environment,
    out_of_time,
    run,
)

SOURCE = "kernel.cpp"
_EXTENSIONS = {
    "__SSE4_2__": "SSE4.2", "__AVX__": "AVX", "__AVX2__": "AVX2", "__FMA__": "FMA", "__F16C__": "F16C",
    "__AVX512F__": "AVX512F", "__AVX512BW__": "AVX512BW", "__AVX512VL__": "AVX512VL", "__AVX512VNNI__": "AVX512VNNI",
    "__AVXVNNI__": "AVXVNNI", "__AVX512BF16__": "AVX512BF16", "__AVX512FP16__": "AVX512FP16",
    "__AMX_TILE__": "AMX-TILE", "__AMX_INT8__": "AMX-INT8", "__AMX_BF16__": "AMX-BF16",
    "__ARM_NEON": "NEON", "__ARM_FEATURE_DOTPROD": "DOTPROD", "__ARM_FEATURE_MATMUL_INT8": "I8MM",
    "__ARM_FEATURE_BF16": "BF16", "__ARM_FEATURE_SVE": "SVE", "__VSX__": "VSX", "__riscv_vector": "RVV",
}  # fmt: skip


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
    probe = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), timeout=60)
    if probe.returncode:
        raise ToolMissing(f"g++ does not accept -march={march}: {probe.stderr.strip().splitlines()[0]}")
    macros = set(re.findall(r"^#define (\w+)", probe.stdout, re.MULTILINE))
    names = [name for macro, name in _EXTENSIONS.items() if macro in macros]
    version = subprocess.run([path, "-dumpfullversion"], capture_output=True, text=True, check=False, timeout=60)
    return Compiler(path, march, f"g++ {version.stdout.strip()}", f"-march={march}: {' '.join(names) or 'baseline'}")


@dataclass(frozen=True)
class Entry:
    """The function that a program must define."""

    name: str
    prototype: str
    """Its declaration, as the coder was shown it."""


def build(compiler: Compiler, entry: Entry, source: str, folder: Path, limit_s: float) -> Build | Unbuilt:
    """The shared object of a source text, in an existing folder."""
    began = time.monotonic()
    (folder / SOURCE).write_text(source, encoding="utf-8")
    library = folder / "kernel.so"
    options = ("-Wl,-z,defs", "-fdiagnostics-color=never", f"-fmax-errors={SHOWN_ERRORS}")
    command = [compiler.path, *compiler.flags, *options, SOURCE, "-o", library.name]
    status, errors = run(command, folder, Limits(limit_s))
    if status is None:
        return out_of_time(limit_s)
    if status != 0 or not library.exists():
        return compile_error(clip(errors, folder) or f"g++ ended with status {status} and said nothing", began)
    missing = _missing_entry(entry, library)
    if missing:
        return compile_error(missing, began)
    return Build(str(library), "c", time.monotonic() - began)


def _missing_entry(entry: Entry, library: Path) -> str:
    """Why the entry point cannot be called; empty when it can, or when there is no nm to ask."""
    nm = shutil.which("nm")
    if nm is None:
        return ""
    command = [nm, "-D", "--defined-only", str(library)]
    listing = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    symbols = {line.split()[-1] for line in listing.stdout.splitlines() if line.strip()}
    name = entry.name
    if name in symbols:
        return ""
    wanted = f"the program must define\n  {entry.prototype}"
    if any(re.match(rf"_Z(\d+|N.*?){name}", symbol) for symbol in symbols):
        return f'{name} is defined with C++ linkage: put extern "C" before it; {wanted}'
    return f"the entry point {name} is not defined; {wanted}"
