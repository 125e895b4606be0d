"""What the compilers of this machine can tell of a program that is to be evaluated elsewhere."""

from __future__ import annotations

import importlib.util
import json
import platform
import re
import tempfile
import time
from pathlib import Path

from state.program import Program
from state.verdict import VERDICT, Receipt, Verdict
from tasks import envelope, host, nvcc
from tasks.building import Builder, Source, Target
from tasks.compiler import SOURCE, Entry, find_compiler
from tasks.task import Task
from tasks.tool import SHOWN_ERRORS, Limits, ToolMissing, Unbuilt, clip, compile_error, run

_ELSEWHERE = re.compile(
    r"No such file|#error|target specific|undeclared.*_mm|_mm\d*_\w+|__m(?:128|256|512)|__builtin_ia32|always_inline|"
    r"unrecognized|unsupported|requires .*\bsm_|not supported on|out of memory|Killed"
)
"""Errors that another machine's headers, processor or GPU might not give."""
_MACHINE = "machine.json"
_CAPABILITY, _PYTHON = "compute capability", "python"


def remember(spool: Path, versions: dict[str, str]) -> None:
    """The spool says what the machine at the other end has, as an answer told it."""
    told = {key: versions[key] for key in (_CAPABILITY, _PYTHON) if key in versions}
    if told and told != _remembered(spool):
        envelope.write(spool / _MACHINE, told)


def _remembered(spool: Path) -> dict[str, str]:
    path = spool / _MACHINE
    known: dict[str, str] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return known


class Screen:
    """Finds true compile errors here; about everything else it is silent."""

    def __init__(self, task: Task, march: str, spool: Path, version: str) -> None:
        self._task = task
        self._march = march
        self._spool = spool
        self._version = version
        self._known: dict[str, Verdict | None] = {}

    def verdict(self, program: Program) -> Verdict | None:
        """A CompileError that every compiler would give; None when only the other machine can tell."""
        if program.id not in self._known:
            with tempfile.TemporaryDirectory(prefix="ksearch-") as folder:
                self._known[program.id] = self._screened(program, Path(folder))
        return self._known[program.id]

    def _screened(self, program: Program, folder: Path) -> Verdict | None:
        check = {"cpp": self._cpp, "cuda": self._cuda, "python": self._python, "triton": self._python}
        try:
            compiler, found = check[program.language](program, folder)
        except ToolMissing:
            return None
        if found is None or found.verdict["kind"] != "compile_error" or _ELSEWHERE.search(str(found.verdict)):
            return None
        receipt = Receipt(
            task=self._task.name, task_hash=self._task.hash, program_id=program.id, evaluator=self._version,
            hardware=host.processor(), isa="", versions={"compiler": compiler, "system": platform.platform()},
            compiler_flags=(), threads=0, environment={}, isolation=("compiled only, on the machine of the search",),
            compile_s=found.seconds,
        )  # fmt: skip
        return VERDICT.validate_python({**found.verdict, "receipt": receipt})

    def _cpp(self, program: Program, folder: Path) -> tuple[str, Unbuilt | None]:
        """Syntax and types; no code is made, which might need another processor's instructions."""
        gxx, began = find_compiler(self._march), time.monotonic()
        (folder / SOURCE).write_text(program.source, encoding="utf-8")
        command = [gxx.path, "-std=c++17", f"-march={self._march}", "-fopenmp", "-fsyntax-only",
                   "-fdiagnostics-color=never", f"-fmax-errors={SHOWN_ERRORS}", SOURCE]  # fmt: skip
        status, said = run(command, folder, Limits(self._task.limits.compile_s))
        return gxx.version, compile_error(clip(said, folder), began) if status else None

    def _cuda(self, program: Program, folder: Path) -> tuple[str, Unbuilt | None]:
        """Device code alone, for the GPU that answered before; nothing before one did."""
        known = _remembered(self._spool).get(_CAPABILITY)
        lacks_headers = nvcc.binding(program.source) == "tvm-ffi" and importlib.util.find_spec("tvm_ffi") is None
        if not known or lacks_headers:
            return "", None
        found = nvcc.find_nvcc(known)
        checked = nvcc.prefilter(found, program.source, folder)
        return found.version, checked if isinstance(checked, Unbuilt) else None

    def _python(self, program: Program, folder: Path) -> tuple[str, Unbuilt | None]:
        """Syntax, by this machine's Python, unless the other one's is newer or not known yet."""
        theirs = _remembered(self._spool).get(_PYTHON, "")
        if not theirs or _minor(theirs) > _minor(platform.python_version()):
            return "", None
        entry = Entry(self._task.entry_point, self._task.prototype())
        built = Builder(Target(entry, self._task.limits.compile_s), folder).build(
            Source(program.id, program.language, program.source)
        )
        return f"Python {platform.python_version()}", built if isinstance(built, Unbuilt) else None


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
