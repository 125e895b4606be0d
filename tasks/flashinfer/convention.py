"""How a task's arguments correspond to those of a definition, which a solution is called with."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import Any

from tasks.errors import TaskError
from tasks.flashinfer.data import Definition, DType, loaded, parse
from tasks.task import Task, TensorSpec

_DTYPES = frozenset(DType.__args__)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Convention:
    """A definition's arguments, as seen from a task."""

    definition: Definition
    derived: bool
    """Whether the definition was made of the task, and not the task of the definition."""
    extents: dict[str, tuple[str, int, int]]
    """Of a dim that is no scalar: the input tensor, the axis, and the factor by which its extent is smaller."""

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs, in the solution's order: tensors and scalars."""
        return list(self.definition.inputs)

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, which follow in destination passing style."""
        return list(self.definition.outputs)

    def is_bool(self, scalar: str) -> bool:
        """Whether an input is a truth value, which a task has as a dim of 0 or 1."""
        spec = self.definition.inputs[scalar]
        return spec.shape is None and spec.dtype == "bool"


def convention(task: Task) -> Convention:
    """What solutions of a task are called with. Raises TaskError for a task that has no such form."""
    if not task.inputs or not task.outputs:
        raise TaskError(f"task {task.name}: its entry point is not given its tensors one by one, as a solution's is")
    own = task.folder / "definition.json"
    if "definition.json" in task.files:
        definition = parse(Definition, loaded(own), str(own))
        return Convention(definition, False, _bound(definition))
    return _derived(task)


def _bound(definition: Definition) -> dict[str, tuple[str, int, int]]:
    found: dict[str, tuple[str, int, int]] = {}
    for name, spec in definition.tensors.items():
        for index, axis in enumerate(spec.shape or []):
            if axis in definition.variable:
                found.setdefault(axis, (name, index, 1))
    unbound = [axis for axis in definition.variable if axis not in found]
    if unbound:
        raise TaskError(f"definition {definition.name}: axis {unbound[0]!r} is no extent of an input")
    return found


def _derived(task: Task) -> Convention:
    """A definition of the task: its dims are variable axes where an input has them, else scalars; so are its params."""
    if task.files:
        raise TaskError(f"task {task.name}: its reference.py needs further files, a definition is one text")
    extents: dict[str, tuple[str, int, int]] = {}
    axes: dict[str, dict[str, Any]] = {}
    for spec in (*task.inputs, *task.outputs):
        if spec.dtype not in _DTYPES:
            raise TaskError(f"task {task.name}: {spec.name}: definitions have no dtype {spec.dtype}")
        for index, extent in enumerate(spec.shape):
            name = _axis(extent)
            axes[name] = {"type": "const", "value": extent} if isinstance(extent, int) else {"type": "var"}
            dim, _, factor = str(extent).partition("/")
            if dim in task.dims and spec in task.inputs:
                kept = extents.get(dim)
                if kept is None or kept[2] > int(factor or 1):
                    extents[dim] = (spec.name, index, int(factor or 1))
    scalars = [dim for dim in task.dims if dim not in extents]
    for spec in task.outputs:
        for extent in spec.shape:
            if str(extent).partition("/")[0] in scalars:
                raise TaskError(f"task {task.name}: {spec.name}: {extent} is no extent of an input")
    inputs = {spec.name: _tensor(spec) for spec in task.inputs}
    inputs |= {dim: {"shape": None, "dtype": "int64"} for dim in scalars}
    inputs |= {param: {"shape": None, "dtype": "float32"} for param in task.params}
    plain = {
        "name": task.name, "op_type": "ksearch", "description": f"{task.title}. {task.specification.strip()}",
        "axes": axes, "inputs": inputs, "outputs": {spec.name: _tensor(spec) for spec in task.outputs},
        "reference": _reference(task, list(inputs), extents), "tags": ["from:ksearch"],
    }  # fmt: skip
    return Convention(parse(Definition, plain, f"task {task.name}"), True, extents)


def _axis(extent: int | str) -> str:
    return f"size_{extent}" if isinstance(extent, int) else extent.replace("/", "_over_")


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"shape": [_axis(extent) for extent in spec.shape], "dtype": spec.dtype}


def _reference(task: Task, inputs: list[str], extents: dict[str, tuple[str, int, int]]) -> str:
    text = task.reference.read_text(encoding="utf-8")
    functions = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    if "run" in functions or "reference" not in functions:
        raise TaskError(f"{task.reference}: a definition needs a function `reference` and no other named `run`")
    wanted = functions["reference"].args
    names = {argument.arg for argument in (*wanted.args, *wanted.kwonlyargs)}
    tensors = [spec.name for spec in task.inputs]
    given = [name for name in inputs if name in tensors or name in names]
    passed = [f"{name}={name}" for name in given]
    passed += [f"{dim}={extent(extents[dim])}" for dim in task.dims if dim in names and dim in extents]
    return f"{text}\n\ndef run({', '.join(inputs)}):\n    return reference({', '.join(passed)})\n"


def extent(bound: tuple[str, int, int], size: str = "{tensor}.shape[{axis}]") -> str:
    """The expression for a dim, from the input that has it."""
    tensor, axis, factor = bound
    return size.format(tensor=tensor, axis=axis) + (f" * {factor}" if factor > 1 else "")


def workload_axes(made: Convention, task: Task, dims: dict[str, int]) -> dict[str, int]:
    """Values of the variable axes under a task's dims."""
    if not made.derived:
        return {axis: dims[axis] for axis in made.definition.variable}
    found: dict[str, int] = {}
    for spec in (*task.inputs, *task.outputs):
        found |= dict(zip((_axis(extent) for extent in spec.shape), spec.extents(dims), strict=True))
    return {axis: found[axis] for axis in made.definition.variable}


def exact(value: float) -> int | float:
    """Whole numbers as such."""
    return int(value) if math.isfinite(value) and value == int(value) else value
