"""What a task needs of a machine: devices, with how many workloads on each, and packages."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

from state.program import Language
from tasks.errors import TaskError
from tasks.task import DEVICE, Device, Task

TOOLS: dict[Language, tuple[str, ...]] = {
    "cpp": ("g++",), "python": (), "triton": ("triton",), "cuda": ("nvcc", "apache-tvm-ffi"),
}  # fmt: skip
"""What programs in each language need beside torch."""
_GIVEN = {"torch", "numpy"}


@dataclass(frozen=True)
class Packages:
    """Modules that the task's own files import beside torch and the standard library."""

    needed: tuple[str, ...]
    optional: tuple[str, ...]
    """Imported inside of functions only, so that what uses them may be missing: a baseline, say."""


def devices(task: Task) -> dict[Device, int]:
    """Workloads on each device that programs for the task can run on; a device without any is left out."""
    places: list[Device] = [place for place in ("cpu", "cuda") if _runs(task, place)]
    counts = {place: sum(load.device in (place, None) for load in task.workloads) for place in places}
    return {place: count for place, count in counts.items() if count}


def _runs(task: Task, place: Device) -> bool:
    return any(DEVICE[language] in (place, None) for language in task.languages)


def packages(task: Task) -> Packages:
    """The packages of reference.py and of the Python files beside it. Raises TaskError where one cannot be parsed."""
    own = {part.removesuffix(".py") for name in task.carried for part in Path(name).parts}
    outer, inner = set[str](), set[str]()
    for name in task.carried:
        if name.endswith(".py"):
            at_once, all_in_all = _imported(task.folder / name)
            outer |= at_once
            inner |= all_in_all - at_once
    known = own | _GIVEN | set(sys.stdlib_module_names)
    return Packages(tuple(sorted(outer - known)), tuple(sorted(inner - outer - known)))


def _imported(file: Path) -> tuple[set[str], set[str]]:
    """The top-level names of the modules that a file imports when it is loaded, and of all that it imports."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        raise TaskError(f"{file}: cannot be parsed ({error})") from None
    certain = {name for statement in tree.body for name in _names(statement)}
    return certain, {name for node in ast.walk(tree) for name in _names(node)}


def _names(node: ast.AST) -> list[str]:
    """The modules that this statement imports; none for any other."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
        return [node.module.partition(".")[0]]
    return []
