"""gpumode:PATH: a problem of a GPU Mode reference-kernels checkout as a task folder.

Booleans and numbers reach upstream's generate_input as what they are, and inputs are drawn anew for every round.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tasks.errors import TaskError
from tasks.sources.folders import kept, toml
from tasks.sources.licences import say_licence
from tasks.sources.popcorn import Problem, Value, read_problem

ORIGIN = "GPU Mode reference-kernels"
"""What the origin of these tasks begins with."""
_BASE = Path(__file__).with_name("gpumode_reference.py")
_NO_SEQUENCES = "SEQUENCES: tuple[str, ...] = ()\n"
_WANTED = ("generate_input", "ref_kernel", "check_implementation")
_MAY_WRITE = ["data*"]
"""Upstream's programs are given copies, and many write their answer into a tensor that comes with the data."""
_LIMITS = {"call_s": 30.0, "compile_s": 300.0, "memory_mb": 8192, "gpu_memory_mb": 16384}
"""A first call may tune a Triton kernel, and loading may compile C++ and CUDA inline."""


def materialise(rest: str) -> Path:
    """The task folder of a problem folder. Raises TaskError, with the reason where a problem is refused."""
    problem = read_problem(Path(rest).expanduser())
    say_licence(problem.file)
    text = problem.texts.get("reference.py", "")
    for function in _WANTED:
        if not re.search(rf"^(def {function}\b|{function}\s*[:=])", text, re.MULTILINE):
            raise TaskError(
                f"{problem.file}: files: reference.py: {function}: not defined; only problems with the entry point "
                f"custom_kernel can be searched (upstream's own harness: ksearch grade gpumode:{rest} FILE)"
            )
    python = {f"upstream/{name}": text for name, text in problem.texts.items() if name.endswith(".py")}
    texts = {"task.toml": toml(_manifest(problem, tuple(python))), "reference.py": _reference(problem), **python}
    try:
        return kept(_name(problem), texts)
    except OSError as error:
        raise TaskError(f"{error.filename}: the task of {problem.name} cannot be kept ({error.strerror})") from None


def _name(problem: Problem) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "-", problem.name).strip("-_") or "problem"


def _manifest(problem: Problem, files: tuple[str, ...]) -> dict[str, Any]:
    manifest = problem.manifest
    device = {"device": "cuda"} if "cuda" in problem.texts["reference.py"] else {}
    used: set[str] = set()
    shown = varying([*manifest.benchmarks, *manifest.tests])

    def loads(cases: tuple[dict[str, Value], ...], prefix: str) -> list[dict[str, Any]]:
        return [{"name": label(case, shown, prefix, used), **device, "args": _args(case)} for case in cases]

    return {
        "name": _name(problem),
        "title": f"GPU Mode {problem.name}",
        "specification": _specification(problem),
        "call": "data",
        "entry_point": "custom_kernel",
        "may_write": _MAY_WRITE,
        "languages": ["python"],
        "baselines": ["ref_kernel"],
        "cuda_baselines": ["compiled"],
        "files": list(files),
        "origin": f"{ORIGIN}, {problem.name}",
        "provenance": "upstream's generate_input under fresh seeds",
        "workloads": loads(manifest.benchmarks, ""),
        "checked": loads(manifest.tests, "test "),
        "limits": _LIMITS,
    }


def _specification(problem: Problem) -> str:
    """Upstream's words, and the code that says what they leave open."""
    code = {name: problem.texts[name] for name in ("task.py", "reference.py") if name in problem.texts}
    parts = [problem.manifest.description.strip()]
    parts += [f"Upstream's {name}:\n```python\n{text.strip()}\n```" for name, text in code.items()]
    parts.append(
        "The program defines custom_kernel(data): data is what generate_input returns, and it returns what ref_kernel "
        "returns, in tensors of its own or in those that came with the data. check_implementation judges it."
    )
    return "\n\n".join(filter(None, parts)) + "\n"


def _reference(problem: Problem) -> str:
    base = _BASE.read_text(encoding="utf-8")
    assert _NO_SEQUENCES in base
    names = tuple(sorted(_sequences(problem)))
    return base.replace(_NO_SEQUENCES, f"SEQUENCES: tuple[str, ...] = {names!r}\n")


def _sequences(problem: Problem) -> set[str]:
    """Names of the arguments that are lists; TaskError where one is a list here and a number there."""
    cases = (*problem.manifest.benchmarks, *problem.manifest.tests)
    names = {name for case in cases for name, value in case.items() if isinstance(value, list)}
    for table in ("benchmarks", "tests"):
        for index, case in enumerate(getattr(problem.manifest, table)):
            for name in names:
                if not isinstance(case.get(name), list):
                    raise TaskError(f"{problem.file}: {table}.{index}.{name}: must be a list, as in other cases")
    return names


def _args(case: dict[str, Value]) -> dict[str, bool | int | float | str]:
    """Arguments of make_inputs: all but the seed, which is drawn anew."""
    return {name: ", ".join(map(str, value)) if isinstance(value, list) else value
            for name, value in case.items() if name != "seed"}  # fmt: skip


def varying(cases: list[dict[str, Value]]) -> set[str]:
    """Names of the arguments but the seed that are not the same in all cases; all of them where none varies."""
    names = {name for case in cases for name in case if name != "seed"}
    return {name for name in names if any(case.get(name) != cases[0].get(name) for case in cases)} or names


def label(case: dict[str, Value], shown: set[str], prefix: str, used: set[str]) -> str:
    """A name for a case that is not among the used ones, from what distinguishes it; it is used then."""
    words = [f"{name}={_short(value)}" for name, value in case.items() if name in shown]
    stem = prefix + (" ".join(words) or "plain")
    name, count = stem, 1
    while name in used:
        count += 1
        name = f"{stem} #{count}"
    used.add(name)
    return name


def _short(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return f"[{min(value)}..{max(value)}]x{len(value)}"
    return str(value)
