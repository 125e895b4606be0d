"""From a program's source to something that a candidate's process can load. Standard library only.

Builds are cached by content: source, compiler, flags. The folder is one that candidates cannot write.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tasks import compiler, lock, nvcc
from tasks.compiler import Entry
from tasks.tool import Build, Unbuilt, compile_error

PYTHON = "kernel.py"
_RECORD = "build.json"


@dataclass(frozen=True)
class Source:
    """A program as it travels to the worker."""

    id: str
    language: str
    text: str


@dataclass(frozen=True)
class Target:
    """What programs are built for."""

    entry: Entry
    limit_s: float
    """Seconds that a compiler may take."""
    march: str = "native"
    capability: str = ""
    """Compute capability of the GPU, for instance "9.0"; empty on a CPU."""


class Builder:
    """Builds programs for one target below one folder."""

    def __init__(self, target: Target, folder: Path) -> None:
        self._target = target
        self._folder = folder

    def build(self, source: Source) -> Build | Unbuilt:
        """The finished build, from the cache if it is there. Raises ToolMissing, LockTimeout."""
        folder = self._folder / self._key(source)
        record = folder / _RECORD
        if record.exists():
            return Build(**json.loads(record.read_text(encoding="utf-8")))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        with lock.compiling():
            built = self._compile(source, folder)
        if isinstance(built, Build):
            partial = folder / f"{_RECORD}.{os.getpid()}"
            partial.write_text(json.dumps(asdict(built)), encoding="utf-8")
            partial.replace(record)
        return built

    def build_all(self, sources: list[Source]) -> None:
        """As `build` for each, side by side on the machine's cores; what fails is built, and told, again later."""
        distinct = {self._key(source): source for source in sources}
        with ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0)))) as pool:
            list(pool.map(self.build, distinct.values()))

    def describe(self, language: str) -> tuple[str, tuple[str, ...], str]:
        """Compiler version, its flags and the instruction set, for a receipt; empty where nothing is compiled."""
        if language == "cpp":
            gxx = compiler.find_compiler(self._target.march)
            return gxx.version, gxx.flags, gxx.isa
        if language == "cuda":
            found = nvcc.find_nvcc(self._target.capability)
            return found.version, found.flags, found.arch
        return "", (), ""

    def _compile(self, source: Source, folder: Path) -> Build | Unbuilt:
        target = self._target
        if source.language == "cpp":
            gxx = compiler.find_compiler(target.march)
            return compiler.build(gxx, target.entry, source.text, folder, target.limit_s)
        if source.language == "cuda":
            found = nvcc.find_nvcc(target.capability)
            return nvcc.build(found, target.entry.name, source.text, folder, target.limit_s)
        return _python(source, target.entry, folder)

    def _key(self, source: Source) -> str:
        """Names the folder of a build: everything that it depends on."""
        parts = (source.language, source.text, self.describe(source.language), self._target.entry.name)
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def _python(source: Source, entry: Entry, folder: Path) -> Build | Unbuilt:
    """The program as a file, once it parses and defines the entry point."""
    began = time.monotonic()
    path = folder / PYTHON
    path.write_text(source.text, encoding="utf-8")
    try:
        code = compile(source.text, PYTHON, "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        return compile_error(f"{PYTHON}:{line or 1}: {type(error).__name__}: {error}", began)
    if entry.name not in code.co_names:
        message = f"the entry point {entry.name} is not defined; the program must define\n  {entry.prototype}"
        return compile_error(message, began)
    return Build(str(path), "python", time.monotonic() - began)
