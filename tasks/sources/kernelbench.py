"""kernelbench:LEVEL/ID: a problem of a KernelBench checkout as a task folder.

The checkout is where the environment variable KERNELBENCH says, or where the name does: kernelbench:PATH:LEVEL/ID.
Upstream checks a program on some (by default five) inputs that follow from one seed; here each check and each timed
round draws fresh inputs, and every output is compared. Tensors keep the dtypes that get_inputs gives them (float32,
and whole numbers for indices).
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Sequence
from pathlib import Path

from tasks.errors import TaskError
from tasks.sources.folders import kept, toml
from tasks.sources.licences import say_licence

ORIGIN = "KernelBench"
VARIABLE = "KERNELBENCH"
_NAME = re.compile(r"^(?:(?P<root>.+):)?(?P<level>\d+)/(?P<id>\d+)$")
_WANTED = ("Model", "get_inputs", "get_init_inputs")
_REFERENCE = Path(__file__).with_name("kernelbench_reference.py")
_TOLERANCE = {"atol": 1e-4, "rtol": 1e-4}
"""Upstream's for float32 (get_tolerance_for_precision); 1e-2 is its value for the 16-bit floats."""
_LIMITS = {"call_s": 60.0, "compile_s": 300.0, "memory_mb": 16384, "gpu_memory_mb": 65536}
"""A module's weights and buffers are the program's own memory, and load_inline may compile while it is loaded."""


def materialise(rest: str) -> Path:
    """The task folder of a problem. Raises TaskError that names the file and what it lacks."""
    match = _NAME.match(rest)
    if match is None:
        raise TaskError(f"kernelbench:{rest}: is not kernelbench:LEVEL/ID, such as kernelbench:1/19")
    root = _root(match["root"] or os.environ.get(VARIABLE, ""), rest)
    file = _problem(root, match["level"], match["id"])
    source = _read(file)
    say_licence(root)
    name = f"kernelbench-{match['level']}-{match['id']}"
    texts = {
        "task.toml": _manifest(name, file, source),
        "reference.py": _REFERENCE.read_text(encoding="utf-8"),
        "problem.py": source,
    }
    try:
        return kept(name, texts)
    except OSError as error:
        raise TaskError(f"{error.filename}: the task of {file} cannot be kept ({error.strerror})") from None


def fast_p(speedups: Sequence[float | None], p: float) -> float:
    """Share of the problems whose program is right and more than p times as fast as the baseline.

    None stands for a program that is not right; 0.0 where there are no problems.
    """
    return sum(value is not None and value > p for value in speedups) / max(1, len(speedups))


def _root(given: str, rest: str) -> Path:
    """The folder with level1, level2, ..."""
    if not given:
        raise TaskError(
            f"kernelbench:{rest}: where is the KernelBench checkout? Set {VARIABLE}=PATH, or say "
            f"kernelbench:PATH:{rest}"
        )
    path = Path(given).expanduser()
    for root in (path / "KernelBench", path):
        if any(root.glob("level*")):
            return root.resolve()
    raise TaskError(f"{path}: holds no KernelBench problems (KernelBench/level1, ...)")


def _problem(root: Path, level: str, number: str) -> Path:
    folder = root / f"level{level}"
    if not folder.is_dir():
        raise TaskError(f"{folder}: there is no such level")
    found = sorted(folder.glob(f"{number}_*.py"))
    if not found:
        raise TaskError(f"{folder}: {number}_*.py: there is no problem {number}")
    if len(found) > 1:
        raise TaskError(f"{folder}: {number}_*.py: {len(found)} files are problem {number}")
    return found[0]


def _read(file: Path) -> str:
    """The problem's text, once it is Python that defines what a problem must."""
    try:
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{file}: cannot be read ({error})") from None
    except (SyntaxError, ValueError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) else ""
        raise TaskError(f"{file}: not valid Python: {getattr(error, 'msg', error)}{line}") from None
    defined: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for name in _WANTED:
        if name not in defined:
            raise TaskError(f"{file}: {name}: not defined")
    return source


def _manifest(name: str, file: Path, source: str) -> str:
    number, _, words = file.stem.partition("_")
    level = file.parent.name.removeprefix("level")
    title = words.replace("_", " ").strip() or number
    return toml({
        "name": name,
        "title": f"{ORIGIN} {level}/{number}: {title}",
        "specification": (
            "ModelNew takes the place of Model in this file: the same arguments of the constructor and of forward, the "
            "same weights under the same seed, the same outputs. make_init is get_init_inputs, and data is what "
            f"get_inputs returns.\n```python\n{source.strip()}\n```\n"
        ),
        "call": "module",
        "entry_point": "ModelNew",
        "languages": ["python", "triton"],
        "baselines": ["eager", "compiled"],
        "files": ["problem.py"],
        "origin": f"{ORIGIN} {level}/{number} ({file.name})",
        "provenance": "get_inputs of the problem, drawn anew for every check and every round",
        "workloads": [{"name": "as_given"}],
        "tolerance": _TOLERANCE,
        "limits": _LIMITS,
    })  # fmt: skip
