"""FlashInfer-Bench's data: definitions, workloads and solutions as its data sets write them, parsed once.

Where the package flashinfer-bench is installed its own models look at everything first.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tasks.errors import TaskError

Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
DType = Literal["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1", "int64", "int32",
                "int16", "int8", "bool"]  # fmt: skip


class _Data(BaseModel):
    """Keys that are not known are passed over, as the package does."""

    model_config = ConfigDict(frozen=True)


class ConstAxis(_Data):
    """An axis with one value for ever."""

    type: Literal["const"] = "const"
    value: Count


class VarAxis(_Data):
    """An axis whose value each workload gives."""

    type: Literal["var"] = "var"


class Tensor(_Data):
    """An argument: a tensor, or a scalar when its shape is None."""

    shape: list[Text] | None
    """Names of axes."""
    dtype: DType
    description: str | None = None

    @property
    def is_float(self) -> bool:
        """Whether it holds floating-point numbers."""
        return "float" in self.dtype


class Definition(_Data):
    """What to compute."""

    name: Text
    op_type: Text
    axes: dict[Text, ConstAxis | VarAxis]
    inputs: dict[Text, Tensor]
    """In the order in which solutions get them."""
    outputs: dict[Text, Tensor]
    reference: Text
    """Python text with a function run(*inputs) that returns the outputs."""
    tags: list[Text] = []
    description: str | None = None
    constraints: list[Text] = []

    @property
    def scalars(self) -> dict[str, Tensor]:
        """The inputs that are no tensors."""
        return {name: spec for name, spec in self.inputs.items() if spec.shape is None}

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The inputs that are tensors."""
        return {name: spec for name, spec in self.inputs.items() if spec.shape is not None}

    @property
    def variable(self) -> list[str]:
        """Names of the axes that workloads give."""
        return [name for name, axis in self.axes.items() if isinstance(axis, VarAxis)]

    def extents(self, spec: Tensor, values: dict[str, int]) -> list[int]:
        """The shape of a tensor under these values of the variable axes; empty for a scalar."""
        axes = [(name, self.axes[name]) for name in spec.shape or []]
        return [axis.value if isinstance(axis, ConstAxis) else values[name] for name, axis in axes]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        functions = [
            node.name for node in _parsed(self.reference, "reference").body if isinstance(node, ast.FunctionDef)
        ]
        if "run" not in functions:
            raise ValueError("reference: no function run at its top level")
        for name in self.inputs.keys() & self.outputs.keys():
            raise ValueError(f"{name!r} is both an input and an output")
        for constraint in self.constraints:
            try:
                ast.parse(constraint, mode="eval")
            except SyntaxError:
                raise ValueError(f"constraints: {constraint!r} is no Python expression") from None
        for name, spec in {**self.inputs, **self.outputs}.items():
            for axis in spec.shape or []:
                if axis not in self.axes:
                    raise ValueError(f"{name}: axis {axis!r} is not defined")
        return self


def _parsed(text: str, key: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"{key}: not valid Python: {error.msg} (line {error.lineno})") from None


class RandomInput(_Data):
    """Drawn anew each time."""

    type: Literal["random"] = "random"


class ScalarInput(_Data):
    """One value."""

    type: Literal["scalar"] = "scalar"
    value: int | float | bool


class SafetensorsInput(_Data):
    """A tensor of a file."""

    type: Literal["safetensors"] = "safetensors"
    path: Text
    """From the root of the data set."""
    tensor_key: Text


class Workload(_Data):
    """Values of the axes, and where the inputs come from; an input that is not named is random."""

    axes: dict[str, Count]
    inputs: dict[str, RandomInput | SafetensorsInput | ScalarInput]
    uuid: Text


class SourceFile(_Data):
    """One file of a solution."""

    path: Text
    content: Text

    @model_validator(mode="after")
    def _below(self) -> Self:
        path = PurePosixPath(self.path)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"{self.path!r} is not a path below the solution's folder")
        return self


class BuildSpec(_Data):
    """How a solution is built and called."""

    language: Literal["python", "triton", "cpp", "cuda", "tilelang"]
    target_hardware: list[str] = Field(min_length=1)
    entry_point: Text
    """FILE::FUNCTION."""
    dependencies: list[Text] = []
    destination_passing_style: bool = True
    """Whether the outputs are given after the inputs; otherwise they are returned."""
    binding: Literal["tvm-ffi", "torch"] | None = None

    @model_validator(mode="after")
    def _two_parts(self) -> Self:
        if self.entry_point.count("::") != 1:
            raise ValueError(f"entry_point: {self.entry_point!r} is not FILE::FUNCTION")
        return self

    @property
    def file(self) -> str:
        """The file of the entry point."""
        return self.entry_point.split("::")[0]

    @property
    def function(self) -> str:
        """The function of the entry point."""
        return self.entry_point.split("::")[1]


class Solution(_Data):
    """A program for a definition."""

    name: Text
    definition: Text
    author: Text
    spec: BuildSpec
    sources: list[SourceFile] = Field(min_length=1)
    description: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        paths = [source.path for source in self.sources]
        for path in paths:
            if paths.count(path) > 1:
                raise ValueError(f"sources: two are named {path!r}")
        if self.spec.file not in paths:
            raise ValueError(f"spec.entry_point: {self.spec.file!r} is none of the sources")
        return self


def package() -> ModuleType | None:
    """The data models of the installed flashinfer-bench; None when it cannot be imported."""
    try:
        import flashinfer_bench.data
    except ImportError:
        return None
    module: ModuleType = flashinfer_bench.data
    return module


Model = TypeVar("Model", Definition, Workload, Solution)


def parse(model: type[Model], data: Any, place: str) -> Model:
    """The data as this model, looked at by the package's own first. Raises TaskError that begins with the place."""
    return parse_with(package(), model, data, place)


def parse_with(theirs: ModuleType | None, model: type[Model], data: Any, place: str) -> Model:
    """As `parse`, with these models of the package, or without."""
    try:
        if theirs is not None:
            data = getattr(theirs, model.__name__).model_validate(data).model_dump(mode="json")
        return model.model_validate(data)
    except ValidationError as error:
        lines = [
            f"{place}: {'.'.join(map(str, item['loc'])) or model.__name__}: {item['msg']}" for item in error.errors()
        ]
        raise TaskError("\n".join(lines)) from None


def loaded(file: Path) -> Any:
    """The JSON of a file. Raises TaskError."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskError(f"{file}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise TaskError(f"{file}: not valid JSON: {error}") from None


def rows(file: Path, name: str) -> list[tuple[str, Workload]]:
    """The workloads of a definition in a JSONL file, each with its place (file:line). Raises TaskError."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise TaskError(f"{file}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise TaskError(f"{file}: not a text file ({error})") from None
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = f"{file}:{number}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise TaskError(f"{place}: not valid JSON: {error}") from None
            if not isinstance(row, dict) or "workload" not in row:
                raise TaskError(f"{place}: workload: missing")
            if row.get("definition") == name:
                found.append((place, parse(Workload, row["workload"], place)))
    return found
