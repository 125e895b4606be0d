"""A task whose entry point is called as upstream projects call theirs, as the trusted process sees it.

What make_inputs returns is taken apart into named tensors and a tree of plain values; what reference returns says
what the outputs are. Standard library and torch only.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any

import torch

from tasks.closeness import close
from tasks.device import Device
from tasks.memory import same_bytes
from tasks.problem import Load, Problem, ProblemError, Spec, Tensors, new_seed
from tasks.structure import Tree, Unfit, dense_strides, leaves, plain_parts, put_together, taken_apart


class Called(Problem):
    """As Problem; the functions of reference.py take and return what upstream's do.

    For call = "module", `reference` and the baselines are, like the entry point, classes or functions that make a
    module from what make_init returns.
    """

    def __init__(self, data: dict[str, Any], device: Device) -> None:
        super().__init__(data, device)
        self.call: str = data["call"]
        self.own_check: bool = data["own_check"]
        self._may_write: tuple[str, ...] = tuple(data["may_write"])
        self._modules: dict[str, Callable[..., Any]] = {}
        self.init: Tree = {}
        if self.call == "module":
            self.seed = new_seed()
            self.init = self._plain_init()

    @property
    def training(self) -> bool:
        """The mode of the reference's module: a program's module is put into the same."""
        return bool(getattr(self._callee("reference"), "training", False))

    def inputs(self, load: Load, seed: int) -> Tensors:
        """Fresh inputs of a workload, each as dense as its spec says."""
        tree, tensors = self._made(load, seed)
        if _text(tree) != _text(load.data):
            raise ProblemError(
                f"{self.file}: make_inputs: returns another structure, or other plain values, under another seed on "
                f"workload {load.name!r}: only what tensors hold may depend on the seed"
            )
        for spec in load.inputs:
            value = tensors[spec.name]
            if (spec.shape, spec.dtype, spec.strides) != (tuple(value.shape), value.dtype, dense_strides(value)):
                raise ProblemError(
                    f"{self.file}: make_inputs: {spec.name} has another shape, dtype or layout under another seed on "
                    f"workload {load.name!r}"
                )
        return tensors

    def reference(self, load: Load, inputs: Tensors) -> Tensors:
        """The expected outputs; ProblemError where they are not like those of other seeds."""
        outputs = self.formulation("reference", load, inputs)
        for spec in load.outputs:
            value = outputs[spec.name]
            if (spec.shape, spec.dtype) != (tuple(value.shape), value.dtype):
                raise ProblemError(
                    f"{self.file}: reference: {spec.name} has another shape or dtype under another seed on workload "
                    f"{load.name!r}"
                )
        return outputs

    def prepared(self, function: str, load: Load, inputs: Tensors) -> Callable[[], Any]:
        """One call of a formulation, on copies of the inputs that it may write to."""
        callee, arguments = self._callee(function), self._arguments(load, inputs)
        return lambda: callee(*arguments)

    def named(self, function: str, load: Load, result: Any) -> Tensors:
        """The tensors that a formulation returned, by output name."""
        try:
            found = leaves(load.returned, result, "output")
        except Unfit as error:
            raise ProblemError(f"{self.file}: {function}: {error}") from None
        for name, value in found:
            if not isinstance(value, torch.Tensor):
                raise ProblemError(f"{self.file}: {function}: {name} is no tensor")
        return {name: value.detach() for name, value in found}

    def complaint(self, load: Load, inputs: Tensors, outputs: Tensors) -> str | None:
        """As Problem.complaint; the check gets copies of whatever it could spoil."""
        if not self.own_check:
            return None
        output = put_together(load.returned, {name: value.clone() for name, value in outputs.items()})
        said = self._call("check", self._data(load, inputs), output)
        if not isinstance(said, str):
            raise ProblemError(f"{self.file}: check: returns a {type(said).__name__}, not a str")
        return said

    def _load(self, item: dict[str, Any]) -> Load:
        """The workload with what one call of make_inputs and two of reference show."""
        blank = Load(item["name"], {}, {}, (), (), item["operations"], item["args"])
        with torch.no_grad():
            tree, tensors = self._made(blank, new_seed())
            load = replace(blank, data=tree, inputs=tuple(_spec(name, value, True) for name, value in tensors.items()))
            own = {name: value.clone() for name, value in tensors.items()}
            result = self._guarded("reference", self.prepared("reference", load, own))
            touched = {name for name, value in own.items() if not same_bytes(value, tensors[name])}
            returned, outputs = self._outputs(result)
            writable = touched | self._declared(load)
            load = replace(
                load, returned=returned, outputs=tuple(_spec(name, value) for name, value in outputs.items()),
                inputs=tuple(replace(spec, writable=spec.name in writable) for spec in load.inputs),
            )  # fmt: skip
            self._look_again(load, tensors, {name: value.clone() for name, value in outputs.items()})
        return load

    def _made(self, load: Load, seed: int) -> tuple[Tree, Tensors]:
        generator = self.device.generator(seed)
        made = self._call("make_inputs", generator, **load.args, **self.asked("make_inputs", load))
        if self.call != "data" and type(made) not in (tuple, list):
            raise ProblemError(
                f"{self.file}: make_inputs: must return a tuple or a list of the entry point's arguments"
            )
        try:
            tree, tensors = taken_apart(made, "data")
        except Unfit as error:
            raise ProblemError(f"{self.file}: make_inputs: {error}") from None
        for name, value in tensors.items():
            if value.layout != torch.strided or value.device.type != self.device.kind:
                raise ProblemError(f"{self.file}: make_inputs: {name} must be a dense tensor on generator.device")
        if not tensors:
            raise ProblemError(f"{self.file}: make_inputs: returns no tensor on workload {load.name!r}")
        return tree, {name: _dense(value) for name, value in tensors.items()}

    def _declared(self, load: Load) -> set[str]:
        """Inputs that the task says may be written to; ProblemError for a pattern that fits none."""
        found: set[str] = set()
        for pattern in self._may_write:
            fitting = {spec.name for spec in load.inputs if fnmatch(spec.name, pattern)}
            if not fitting:
                raise ProblemError(f"{self.manifest}: may_write: {pattern!r} fits no input of workload {load.name!r}")
            found |= fitting
        return found

    def _outputs(self, result: Any) -> tuple[Tree, Tensors]:
        try:
            tree, tensors = taken_apart(result, "output")
        except Unfit as error:
            raise ProblemError(f"{self.file}: reference: {error}") from None
        if plain := plain_parts(tree, "output"):
            raise ProblemError(f"{self.file}: reference: {plain[0]} is no tensor: it must return tensors and no more")
        for name, value in tensors.items():
            if value.layout != torch.strided or value.device.type != self.device.kind or value.is_complex():
                raise ProblemError(f"{self.file}: reference: {name} must be a dense, real tensor on the inputs' device")
        if not tensors:
            raise ProblemError(f"{self.file}: reference: returns no tensor")
        return tree, {name: _dense(value) for name, value in tensors.items()}

    def _look_again(self, load: Load, inputs: Tensors, first: Tensors) -> None:
        """A reference that draws random numbers, or remembers earlier calls, cannot be compared with."""
        if self.own_check:
            return
        for name, value in self.reference(load, inputs).items():
            if not close(value, first[name], self.tolerance.doubled()):
                raise ProblemError(
                    f"{self.file}: reference: {name} is another one when the same inputs come again on workload "
                    f"{load.name!r}: nothing can be compared with it"
                )

    def _arguments(self, load: Load, inputs: Tensors) -> tuple[Any, ...]:
        data = self._data(load, inputs)
        return (data,) if self.call == "data" else tuple(data)

    def _data(self, load: Load, inputs: Tensors) -> Any:
        own = {spec.name: inputs[spec.name].clone() if spec.writable else inputs[spec.name] for spec in load.inputs}
        return put_together(load.data, own)

    def _callee(self, function: str) -> Callable[..., Any]:
        """What is called with the data: a function of reference.py, or the module that it makes."""
        if self.call != "module":
            return self.function(function)
        if function not in self._modules:
            self._modules[function] = self._guarded(function, lambda: self._module_of(function))
        return self._modules[function]

    def _module_of(self, function: str) -> Callable[..., Any]:
        assert self.seed is not None
        devices = [torch.cuda.current_device()] if self.device.kind == "cuda" else []
        with torch.random.fork_rng(devices):  # the harness's own random numbers do not follow from this seed
            torch.manual_seed(self.seed)
            made = self.function(function)(*put_together(self.init, {}))
        return made.to(self.device.kind) if isinstance(made, torch.nn.Module) else made

    def _plain_init(self) -> Tree:
        made = self._call("make_init")
        if type(made) not in (tuple, list):
            raise ProblemError(f"{self.file}: make_init: must return a tuple or a list of the constructor's arguments")
        try:
            tree, tensors = taken_apart(made, "init")
        except Unfit as error:
            raise ProblemError(f"{self.file}: make_init: {error}") from None
        if tensors:
            raise ProblemError(
                f"{self.file}: make_init: {next(iter(tensors))} is a tensor: only plain values are taken"
            )
        return tree


def open_problem(data: dict[str, Any], device: Device) -> Problem:
    """The problem in the form that its task's `call` asks for."""
    return Problem(data, device) if data["call"] == "tensors" else Called(data, device)


def _text(tree: Tree) -> str:
    return json.dumps(tree)


def _dense(value: torch.Tensor) -> torch.Tensor:
    """The tensor without history, its layout kept where its elements fill the memory."""
    value = value.detach()
    return value if dense_strides(value) is not None else value.contiguous()


def _spec(name: str, value: torch.Tensor, is_input: bool = False) -> Spec:
    """Of an input nobody knows whether it must be read as a whole."""
    return Spec(name, value.dtype, tuple(value.shape), is_input, dense_strides(value))
