"""A task is data: a folder with task.toml and reference.py that says what to compute and on which shapes."""

from __future__ import annotations

import hashlib
import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from state.program import Language

LIBRARY = Path(__file__).parent / "library"
"""Folder of the tasks that are shipped."""

DTYPES = {
    "float32": "float", "float64": "double", "int8": "int8_t", "uint8": "uint8_t",
    "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "bfloat16": "uint16_t", "float16": "uint16_t",
}  # fmt: skip
"""C type of each tensor dtype (bfloat16 and float16 arrive as their bits)."""

Identifier = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
_EXTENT = re.compile(r"^([A-Za-z_]\w*)(?:/([1-9]\d*))?$")


class TaskError(ValueError):
    """A task cannot be used; the message names the file and the key."""


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorSpec(_Data):
    """One tensor of the entry point; contiguous, row-major."""

    name: str = Identifier
    dtype: Literal["float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bfloat16", "float16"]
    shape: tuple[int | str, ...]
    """Extents: a number, the name of a dimension, or "name/number" (exact division)."""

    def extents(self, dims: dict[str, int]) -> tuple[int, ...]:
        """The shape under these dimensions; ValueError when a name is unknown or a division is inexact."""
        return tuple(_extent(extent, dims) for extent in self.shape)


def _extent(extent: int | str, dims: dict[str, int]) -> int:
    if isinstance(extent, int):
        return extent
    match = _EXTENT.match(extent)
    if match is None or match[1] not in dims:
        raise ValueError(f"extent {extent!r} is neither a number, a dimension, nor dimension/number")
    size, divisor = dims[match[1]], int(match[2] or 1)
    if size % divisor:
        raise ValueError(f"extent {extent!r} is not whole: {match[1]} = {size}")
    return size // divisor


class Workload(_Data):
    """One set of dimensions that the program is checked and timed on."""

    name: str
    dims: dict[str, Annotated[int, Field(gt=0)]]


class Tolerance(_Data):
    """|output - reference| <= atol + rtol * |reference|, element by element."""

    atol: float = Field(ge=0)
    rtol: float = Field(ge=0)


class Limits(_Data):
    """What a candidate may use."""

    call_s: float = Field(default=5.0, gt=0)
    """Seconds for one call of the entry point."""
    compile_s: float = Field(default=60.0, gt=0)
    memory_mb: int = Field(default=1024, gt=0)
    """Memory beyond the tensors themselves, in MiB."""


class Task(_Data):
    """A kernel to be made faster (T in the paper)."""

    folder: Path
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
    title: str
    specification: str
    """What to compute, in words and formulas; models read it."""
    entry_point: str = Identifier
    languages: tuple[Language, ...] = Field(min_length=1)
    dims: tuple[str, ...]
    """Names of the int64_t arguments that follow the tensors, in order."""
    inputs: tuple[TensorSpec, ...] = Field(min_length=1)
    outputs: tuple[TensorSpec, ...] = Field(min_length=1)
    workloads: tuple[Workload, ...] = Field(min_length=1)
    held_out: tuple[Workload, ...] = ()
    """Workloads that only the final measurement sees; the search's own with new seeds when empty."""
    tolerance: Tolerance
    baselines: tuple[str, ...] = Field(min_length=1)
    """Functions of reference.py to race: the fastest on a workload is its baseline."""
    limits: Limits = Limits()
    notes: dict[Language, str] = {}
    """Advice for the coder, per language."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [tensor.name for tensor in (*self.inputs, *self.outputs)] + list(self.dims)
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} is used twice among inputs, outputs and dims")
        for workload in (*self.workloads, *self.held_out):
            if set(workload.dims) != set(self.dims):
                raise ValueError(f"workload {workload.name!r} must give exactly the dims {self.dims}")
            for tensor in (*self.inputs, *self.outputs):
                try:
                    tensor.extents(workload.dims)
                except ValueError as error:
                    raise ValueError(f"{tensor.name} in workload {workload.name!r}: {error}") from None
        labels = [workload.name for workload in (*self.workloads, *self.held_out)]
        for label in labels:
            if labels.count(label) > 1:
                raise ValueError(f"two workloads are named {label!r}")
        return self

    @property
    def reference(self) -> Path:
        """The file with make_inputs, reference and the baseline formulations."""
        return self.folder / "reference.py"

    @property
    def playbook(self) -> Path:
        """Folder of hand-written intents; need not exist."""
        return self.folder / "playbook"

    @cached_property
    def hash(self) -> str:
        """Sixteen hex digits of all that a verdict depends on: task.toml and reference.py."""
        text = (self.folder / "task.toml").read_bytes() + b"\0" + self.reference.read_bytes()
        return hashlib.sha256(text).hexdigest()[:16]

    def prototype(self) -> str:
        """The C declaration of the entry point."""
        arguments = [f"const {DTYPES[t.dtype]} *{t.name}" for t in self.inputs]
        arguments += [f"{DTYPES[t.dtype]} *{t.name}" for t in self.outputs]
        arguments += [f"int64_t {name}" for name in self.dims]
        return f'extern "C" void {self.entry_point}({", ".join(arguments)});'


def load_task(folder: Path) -> Task:
    """The task in a folder; TaskError names the file and the key that is wrong."""
    file = folder / "task.toml"
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskError(f"{file}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"{file}: not valid TOML: {error}") from None
    if "folder" in data:
        raise TaskError(f"{file}: folder: unknown key")
    try:
        task = Task.model_validate({**data, "folder": folder.resolve()})
    except ValidationError as error:
        lines = [f"{file}: {_key(item['loc'])}: {item['msg']}" for item in error.errors()]
        raise TaskError("\n".join(lines)) from None
    try:
        source = task.reference.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{task.reference}: cannot be read ({error})") from None
    for function in ("make_inputs", "reference", *task.baselines):
        if not re.search(rf"^(def {function}\b|{function}\s*[:=])", source, re.MULTILINE):
            raise TaskError(f"{task.reference}: {function}: not defined")
    return task


def find_task(name: str) -> Task:
    """The shipped task of this name, or the one in this folder; TaskError lists what there is."""
    if "/" in name or Path(name).is_dir():
        return load_task(Path(name))
    if name in shipped():
        return load_task(LIBRARY / name)
    raise TaskError(
        f"unknown task {name!r}: it is neither a folder nor one of {', '.join(shipped())} "
        "(`ksearch new NAME` makes a folder for a task of your own)"
    )


def shipped() -> list[str]:
    """Names of the tasks in the library."""
    return sorted(path.parent.name for path in LIBRARY.glob("*/task.toml"))


def _key(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "task"
