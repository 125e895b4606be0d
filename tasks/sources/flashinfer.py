"""flashinfer:DEFINITION or flashinfer:DATASET:DEFINITION: a definition of a FlashInfer-Bench data set as a task.

DATASET is a folder. Without it the data set is where flashinfer-bench itself looks: FIB_DATASET_PATH, else
~/.cache/flashinfer_bench/dataset. It holds definitions/<op>/<name>.json, workloads/<op>/<name>.jsonl and blob/...
DEFINITION@8 takes eight of its workloads, spread over the file, and for the final measurement as many of the others.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.errors import TaskError
from tasks.flashinfer.data import Definition, ScalarInput, Tensor, Workload, loaded, parse, rows
from tasks.flashinfer.inputs import Inputs, violated
from tasks.sources.folders import kept, toml
from tasks.sources.licences import say_licence

_BASE = Path(__file__).with_name("flashinfer_reference.py")
_LIBRARY = Path(__file__).parent.parent / "library"
_DENSE = {"gemm", "rmsnorm", "rope"}
"""Op types whose right answers need every element of every input, and whose references torch.compile takes whole."""
_ATOL = _RTOL = 1e-2
_MATCHED = 0.95
_LIMITS = {"call_s": 30.0, "compile_s": 300.0, "memory_mb": 8192, "gpu_memory_mb": 16384}
_OWN_CHECK = {"sampling": "by their distribution", "dsa_topk_indexer": "as sets"}
"""Definitions whose outputs flashinfer-bench does not compare element by element, by op type or start of the name."""
_IDENTIFIER = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_RESERVED = {"generator", "workload"}
Row = tuple[str, Workload]
"""A workload with its place in the data set."""


def materialise(rest: str) -> Path:
    """The task folder of a definition. Raises TaskError, with the file and the key that are at fault."""
    place, _, wanted = rest.rpartition(":")
    name, _, count = wanted.partition("@")
    if "@" in wanted and not (count.isdecimal() and int(count)):
        raise TaskError(f"flashinfer:{rest}: after @ comes the number of workloads, from 1 on")
    root = Path(place).expanduser() if place else dataset()
    if not (root / "definitions").is_dir():
        raise TaskError(
            f"{root}: no FlashInfer-Bench data set: it has no folder definitions (FIB_DATASET_PATH names one)"
        )
    say_licence(root)
    file = _file(root, name)
    data = loaded(file)
    if isinstance(data, dict) and not data.get("reference"):
        return _shipped(name, file)
    definition = parse(Definition, data, str(file))
    if definition.name != name:
        raise TaskError(f"{file}: name: says {definition.name!r}")
    _usable(definition, file)
    made = _made(definition, root, int(count or 0))
    texts = {
        "task.toml": toml(_manifest(definition, made)),
        "reference.py": _reference(definition),
        "definition_reference.py": definition.reference,
        "definition.json": json.dumps(data, indent=1),
        "workloads.json": json.dumps(made.plain, indent=1),
        "dataset.txt": str(root.resolve()),
        **made.inputs.texts,
    }
    try:
        return kept(task_name(name), texts)
    except OSError as error:
        raise TaskError(f"{error.filename}: the task of {name} cannot be kept ({error.strerror})") from None


def _shipped(name: str, file: Path) -> Path:
    """The shipped task of this name, or that says that it comes from the definition of this name."""
    for folder in sorted(path.parent for path in _LIBRARY.glob("*/task.toml")):
        origin = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8")).get("origin", "")
        if folder.name == name or says(origin, name):
            return folder
    raise TaskError(f"{file}: reference: missing, and no task of the name {name} is shipped")


def says(origin: str, definition: str) -> bool:
    """Whether a task's origin names this definition."""
    return re.search(rf"(?<![\w-]){re.escape(definition)}(?![\w-])", origin) is not None


def dataset() -> Path:
    """Where flashinfer-bench looks for its data set."""
    named = os.environ.get("FIB_DATASET_PATH")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "flashinfer_bench" / "dataset"


def task_name(definition: str) -> str:
    """The name of the task that is made of a definition."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", definition).lstrip("_-") or "definition"


def _file(root: Path, name: str) -> Path:
    found = sorted((root / "definitions").rglob("*.json"))
    for file in found:
        if file.stem == name:
            return file
    names = ", ".join(file.stem for file in found[:20]) + (", ..." if len(found) > 20 else "")
    raise TaskError(f"{root / 'definitions'}: no {name!r}.json; there is {names or 'none'}")


def _usable(definition: Definition, file: Path) -> None:
    for start, how in _OWN_CHECK.items():
        if definition.op_type == start or definition.name.startswith(start):
            raise TaskError(
                f"{file}: op_type: flashinfer-bench compares outputs of {start} {how}; tasks cannot do that"
            )
    for name, spec in {**definition.inputs, **definition.outputs}.items():
        if spec.dtype == "float4_e2m1":
            raise TaskError(f"{file}: {name}: dtype: {spec.dtype} is not supported: two numbers share a byte")
    for name in [*definition.inputs, *definition.outputs, *definition.variable]:
        if not _IDENTIFIER.match(name) or name in _RESERVED:
            raise TaskError(f"{file}: {name!r} cannot name an argument of a task")
    if not definition.tensors:
        raise TaskError(f"{file}: inputs: none is a tensor")


@dataclass
class _Made:
    """The workloads of a definition, as tables of task.toml and as the data that reference.py reads."""

    inputs: Inputs
    searched: list[dict[str, Any]]
    held_out: list[dict[str, Any]]
    plain: dict[str, Any]


def _made(definition: Definition, root: Path, count: int) -> _Made:
    """The first `count` workloads of a row of evenly spread ones, or all of them where it is 0."""
    files = [file for file in sorted((root / "workloads").rglob("*.jsonl")) if file.stem == definition.name]
    found = [row for file in files for row in rows(file, definition.name)]
    if not found:
        raise TaskError(f"{root / 'workloads'}: no workload of {definition.name} ({definition.name}.jsonl)")
    made = _Made(Inputs(definition, root), [], [], {})
    searched = spread(found, count or len(found))
    held_out = spread([row for row in found if row not in searched], count)
    for place, row in (*searched, *held_out):
        name = row.uuid[:8] if row.uuid[:8] not in made.plain else row.uuid
        if name in made.plain:
            raise TaskError(f"{place}: workload.uuid: {row.uuid!r} is used twice")
        for axis in definition.variable:
            if axis not in row.axes:
                raise TaskError(f"{place}: workload.axes.{axis}: missing")
        sources = made.inputs.sources(row, place)
        fault = violated(definition, row, made.inputs.integers)
        if fault:
            raise TaskError(f"{place}: {fault}")
        tables = made.searched if len(made.searched) < len(searched) else made.held_out
        tables.append({"name": name, **_numbers(definition, row, place)})
        made.plain[name] = {"row": row.model_dump(mode="json"), "sources": sources}
    return made


def spread(items: list[Row], count: int) -> list[Row]:
    """So many of the items, evenly spread, in order; all of them where there are no more."""
    if count >= len(items):
        return items
    return [items[(2 * index + 1) * len(items) // (2 * count)] for index in range(count)]


def _numbers(definition: Definition, row: Workload, place: str) -> dict[str, dict[str, float]]:
    """The dims and params of a workload."""
    numbers = {key: _scalar(spec, key, row, place) for key, spec in definition.scalars.items()}
    params = {key: float(value) for key, value in numbers.items() if definition.inputs[key].is_float}
    dims: dict[str, float] = {axis: row.axes[axis] for axis in definition.variable}
    dims |= {key: int(value) for key, value in numbers.items() if key not in params}
    return {"dims": dims, "params": params} if params else {"dims": dims}


def _scalar(spec: Tensor, key: str, row: Workload, place: str) -> float:
    """The value of a scalar. Raises TaskError where a task cannot have it."""
    source = row.inputs.get(key)
    if not isinstance(source, ScalarInput):
        raise TaskError(
            f"{place}: workload.inputs.{key}: a scalar needs a value here: a task's are the same in every call"
        )
    if not spec.is_float and (not float(source.value).is_integer() or source.value < 0):
        raise TaskError(
            f"{place}: workload.inputs.{key}: {source.value} is no whole number from 0 on, as {spec.dtype} needs"
        )
    return source.value


def _manifest(definition: Definition, made: _Made) -> dict[str, Any]:
    scalars = definition.scalars
    low_bit = definition.op_type == "moe" or "moe_fp8_block_scale" in definition.name
    carried = sorted(made.inputs.texts)

    def tensors(specs: dict[str, Tensor], partial: bool) -> list[dict[str, Any]]:
        axes = {axis: definition.extents(Tensor(shape=[axis], dtype="int8"), {}) for axis in definition.axes
                if axis not in definition.variable}  # fmt: skip
        return [{"name": name, "dtype": spec.dtype, **({"partial": True} if partial else {}),
                 "shape": [axes[axis][0] if axis in axes else axis for axis in spec.shape or []]}
                for name, spec in specs.items()]  # fmt: skip

    return {
        "name": task_name(definition.name),
        "title": f"FlashInfer-Bench {definition.name}",
        "specification": _specification(definition),
        "entry_point": "run",
        "languages": ["python", "triton", "cuda", "cpp"],
        "dims": [*definition.variable, *(name for name, spec in scalars.items() if not spec.is_float)],
        "params": [name for name, spec in scalars.items() if spec.is_float],
        "baselines": ["definition"],
        "cuda_baselines": ["compiled"] if definition.op_type in _DENSE else [],
        "files": ["definition.json", "definition_reference.py", "workloads.json", *carried],
        "origin": f"FlashInfer-Bench definition {definition.name} ({definition.op_type})",
        "provenance": made.inputs.provenance(len(made.plain)),
        "inputs": tensors(definition.tensors, definition.op_type not in _DENSE),
        "outputs": tensors(definition.outputs, False),
        "workloads": made.searched,
        **({"held_out": made.held_out} if made.held_out else {}),
        "tolerance": {"atol": _ATOL, "rtol": _RTOL, **({"matched": _MATCHED} if low_bit else {})},
        "limits": _LIMITS,
    }


def _specification(definition: Definition) -> str:
    lines = [definition.description or definition.name, ""]
    for title, specs in (("Inputs", definition.inputs), ("Outputs", definition.outputs)):
        lines += [f"{title}:", *(_line(name, spec) for name, spec in specs.items()), ""]
    axes = [f"{name} = {axis.value}" for name, axis in definition.axes.items() if axis.type == "const"]
    lines += [f"Constant axes: {', '.join(axes)}."] * bool(axes)
    lines += [f"It holds that {', and '.join(definition.constraints)}."] * bool(definition.constraints)
    order = "input tensors, output tensors, variable axes" + (", then scalars" if definition.scalars else "")
    lines += [
        f"The entry point gets {order}, and writes its outputs in place. (The run() below is called with the inputs "
        "and scalars in the order above, and returns the outputs.) An output that is a scalar has no dimensions.",
        "The right answer, and the formulation that programs are measured against, is the definition's own reference:",
        "", definition.reference.rstrip(), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _line(name: str, spec: Tensor) -> str:
    shape = "scalar" if spec.shape is None else f"[{', '.join(spec.shape)}]"
    return f"- {name}: {shape} {spec.dtype}" + (f". {spec.description}" if spec.description else "")


def _reference(definition: Definition) -> str:
    """Our own text about inputs, with functions that take what this definition takes."""
    names = ", ".join(definition.inputs)
    given = ", ".join(f"bool({name})" if spec.shape is None and spec.dtype == "bool" else name
                      for name, spec in definition.inputs.items())  # fmt: skip
    text = _BASE.read_text(encoding="utf-8")
    text += (
        f'\n\ndef reference({names}):\n    """What the definition\'s own run returns."""\n    return answer({given})\n'
    )
    text += "\n\ndefinition = reference\n"
    if definition.op_type in _DENSE:
        text += f"\n_compiled = torch.compile(_run(), dynamic=False)\n\n\ndef compiled({names}):\n"
        text += f'    """The same through torch.compile."""\n    return _compiled({given})\n'
    return text
