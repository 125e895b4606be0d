"""A task as the trusted process sees it: plain data and the functions of reference.py. Standard library, torch."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from tasks.closeness import Tolerance
from tasks.device import Device
from tasks.structure import Tensors as Tensors  # noqa: PLC0414 - passed on to importers
from tasks.structure import Tree


class ProblemError(Exception):
    """The task's own files are at fault; the message names the file and the function or key."""


@dataclass(frozen=True)
class Spec:
    """One tensor under one workload's dimensions."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    partial: bool = False
    """Not every element of it need be read."""
    strides: tuple[int, ...] | None = None
    """In elements, of a dense layout; None: row-major."""
    writable: bool = False
    """An input that the program may write to."""

    @property
    def nbytes(self) -> int:
        """Size of the dense tensor."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count * self.dtype.itemsize


@dataclass(frozen=True)
class Load:
    """One workload with its tensors."""

    name: str
    dims: dict[str, int]
    params: dict[str, float]
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    operations: float = 0.0
    """Arithmetic operations of a call; 0 when the task does not say."""
    args: dict[str, Any] = field(default_factory=dict)
    """What make_inputs is given beside the dims and params."""
    data: Tree = field(default_factory=dict)
    """How the inputs are put together, where they are not passed one by one."""
    returned: Tree = field(default_factory=dict)
    """How the outputs are put together, where the entry point returns them."""

    @property
    def least_read(self) -> int:
        """Bytes of input that every right program must read."""
        return sum(spec.nbytes for spec in self.inputs if not spec.partial)

    @property
    def written(self) -> int:
        """Bytes of output."""
        return sum(spec.nbytes for spec in self.outputs)


class _Loads(dict[str, Load]):
    """Workloads by name, each worked out when it is first asked for."""

    def __init__(self, items: list[dict[str, Any]], make: Callable[[dict[str, Any]], Load]) -> None:
        super().__init__()
        self._items = {item["name"]: item for item in items}
        self._make = make

    def __missing__(self, name: str) -> Load:
        self[name] = made = self._make(self._items[name])
        return made


class Problem:
    """The functions of reference.py under the promises of task.toml, on one device; every call is checked."""

    call = "tensors"
    """How the entry point is called."""
    seed: int | None = None
    """What the weights of modules are drawn under; None where there are none."""

    def __init__(self, data: dict[str, Any], device: Device) -> None:
        self.device = device
        self.file = Path(data["reference"])
        self.manifest = Path(data["manifest"])
        self.entry_point: str = data["entry_point"]
        self.dims: tuple[str, ...] = tuple(data["dims"])
        self.params: tuple[str, ...] = tuple(data["params"])
        self.tolerance = Tolerance(**data["tolerance"])
        self.call_s: float = data["call_s"]
        self.compile_s: float = data["compile_s"]
        self.memory_mb: int = data["memory_mb"]
        self.gpu_memory_mb: int = data["gpu_memory_mb"]
        self.baselines: tuple[str, ...] = tuple(data["baselines"])
        self.checked: tuple[str, ...] = tuple(data.get("checked", ()))
        self.loads = _Loads(data["workloads"], self._load)
        self._module = _import(self.file)

    def inputs(self, load: Load, seed: int) -> Tensors:
        """Fresh inputs of a workload, contiguous, as task.toml promises them."""
        generator = self.device.generator(seed)
        made = self._call("make_inputs", generator, **{**load.dims, **load.params, **self.asked("make_inputs", load)})
        names = [spec.name for spec in load.inputs]
        if not isinstance(made, dict) or sorted(made) != sorted(names):
            raise ProblemError(f"{self.file}: make_inputs: must return a dict with exactly the keys {names}")
        tensors = {}
        for spec in load.inputs:
            self._fits(spec, made[spec.name], "inputs", "make_inputs", load)
            if made[spec.name].device.type != self.device.kind:
                raise ProblemError(f"{self.file}: make_inputs: {spec.name} must be made on generator.device")
            tensors[spec.name] = made[spec.name].contiguous()
        return tensors

    def asked(self, function: str, load: Load) -> dict[str, Any]:
        """Of the workload's dims, params and name (`workload`) what a function has parameters for."""
        known = {**load.dims, **load.params, "workload": load.name}
        try:
            parameters = inspect.signature(self.function(function)).parameters
        except ValueError:  # a function of PyTorch's own without a signature
            return {}
        except AttributeError:
            raise ProblemError(f"{self.file}: {function}: not defined") from None
        return {name: value for name, value in known.items() if name in parameters}

    def reference(self, load: Load, inputs: Tensors) -> Tensors:
        """The expected outputs; ProblemError where they disagree with task.toml."""
        outputs = self.formulation("reference", load, inputs)
        for spec in load.outputs:
            self._fits(spec, outputs[spec.name], "outputs", "reference", load)
        return outputs

    def formulation(self, function: str, load: Load, inputs: Tensors) -> Tensors:
        """The outputs of one formulation by name; ProblemError when it raises or returns too few."""
        work = self.prepared(function, load, inputs)
        return self.named(function, load, self._guarded(function, work))

    def prepared(self, function: str, load: Load, inputs: Tensors) -> Callable[[], Any]:
        """One call of a formulation, ready to be timed: what `plan_<function>` makes is made, and passed first.

        ProblemError when that raises.
        """
        plan = f"plan_{function}"
        planned: tuple[Any, ...] = ()
        if hasattr(self._module, plan):
            planned = (self._call(plan, **self._passed(plan, load, inputs)),)
        return partial(self.function(function), *planned, **self._passed(function, load, inputs))

    def plan_us(self, function: str, load: Load, inputs: Tensors) -> float | None:
        """Host time in microseconds of what is planned untimed before a formulation; None when there is no plan."""
        plan = f"plan_{function}"
        if not hasattr(self._module, plan):
            return None
        given = self._passed(plan, load, inputs)
        self.device.settle()
        began = time.perf_counter_ns()
        self._call(plan, **given)
        self.device.settle()
        return (time.perf_counter_ns() - began) / 1000

    def _passed(self, function: str, load: Load, inputs: Tensors) -> dict[str, Any]:
        return {**inputs, **self.asked(function, load)}

    def function(self, name: str) -> Callable[..., Any]:
        """The bare function of reference.py."""
        found: Callable[..., Any] = getattr(self._module, name)
        return found

    def complaint(self, load: Load, inputs: Tensors, outputs: Tensors) -> str | None:
        """What the task's own check says, empty when the outputs are right; None where the tolerance decides."""
        return None

    def named(self, function: str, load: Load, result: Any) -> Tensors:
        """The tensors that a formulation returned, by output name."""
        values = (result,) if isinstance(result, torch.Tensor) else result
        if not isinstance(values, (tuple, list)) or len(values) != len(load.outputs):
            raise ProblemError(
                f"{self.file}: {function}: must return {len(load.outputs)} tensor(s), in order of [[outputs]]"
            )
        return {spec.name: value for spec, value in zip(load.outputs, values, strict=True)}

    def _load(self, item: dict[str, Any]) -> Load:
        return _load(item)

    def _call(self, function: str, *args: Any, **kwargs: Any) -> Any:
        return self._guarded(function, lambda: self.function(function)(*args, **kwargs))

    def _guarded(self, function: str, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the task author's own code
            raise ProblemError(f"{self.file}: {function}: {_reason(error, self.file)}") from None

    def _fits(self, spec: Spec, value: Any, table: str, function: str, load: Load) -> None:
        if not isinstance(value, torch.Tensor):
            raise ProblemError(f"{self.file}: {function}: {spec.name} is no tensor")
        if tuple(value.shape) != spec.shape:
            raise ProblemError(
                f"{self.manifest}: {table}.{spec.name}.shape: says {list(spec.shape)} on workload {load.name!r}, "
                f"but {function} returns {list(value.shape)}"
            )
        if value.dtype != spec.dtype:
            raise ProblemError(
                f"{self.manifest}: {table}.{spec.name}.dtype: says {_dtype_name(spec.dtype)}, "
                f"but {function} returns {_dtype_name(value.dtype)}"
            )


def new_seed() -> int:
    """A seed that nobody can foresee."""
    return int.from_bytes(os.urandom(6), "little")


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _load(item: dict[str, Any]) -> Load:
    def specs(table: str) -> tuple[Spec, ...]:
        return tuple(
            Spec(t["name"], getattr(torch, t["dtype"]), tuple(t["shape"]), t.get("partial", False)) for t in item[table]
        )

    inputs, outputs = specs("inputs"), specs("outputs")
    return Load(item["name"], item["dims"], item["params"], inputs, outputs, item.get("operations", 0.0))


def _import(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("ksearch_reference", file)
    if spec is None or spec.loader is None:
        raise ProblemError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # nothing is left in the user's folder
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the task author's own code
        raise ProblemError(f"{file}: import: {_reason(error, file)}") from None
    finally:
        sys.dont_write_bytecode = writes
    return module


def _reason(error: BaseException, file: Path) -> str:
    """The exception in one line, with the line of reference.py that raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    where = f" (line {lines[-1]})" if lines else ""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else 'no message'}{where}"
