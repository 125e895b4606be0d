"""A task is data: a folder with task.toml and reference.py that says what to compute and on which shapes."""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from state.program import Language
from tasks.errors import TaskError as TaskError  # noqa: PLC0414 - passed on to importers
from tasks.prototype import described, prototype
from tasks.sources import SOURCES

LIBRARY = Path(__file__).parent / "library"
"""Folder of the tasks that are shipped."""

Device = Literal["cpu", "cuda"]

DEVICE: dict[Language, Device | None] = {"cpp": "cpu", "python": None, "triton": "cuda", "cuda": "cuda"}
"""Where the programs of each language run; None: on either."""

Identifier = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
_EXTENT = re.compile(r"^([A-Za-z_]\w*)(?:/([1-9]\d*))?$")


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorSpec(_Data):
    """One tensor of the entry point; contiguous, row-major."""

    name: str = Identifier
    dtype: Literal["float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bfloat16", "float16",
                   "float8_e4m3fn", "float8_e5m2", "bool"]  # fmt: skip
    shape: tuple[int | str, ...]
    """Extents: a number, the name of a dimension, or "name/number" (exact division)."""
    partial: bool = False
    """Whether a call may be right without reading every element; such a tensor adds nothing to the least traffic."""

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
    if not size:
        raise ValueError(f"extent {extent!r} is zero")
    if size % divisor:
        raise ValueError(f"extent {extent!r} is not whole: {match[1]} = {size}")
    return size // divisor


class Workload(_Data):
    """One set of dimensions that the program is checked and timed on."""

    name: str
    dims: dict[str, Annotated[int, Field(ge=0)]]
    params: dict[str, float] = {}
    """Values of the task's params."""
    device: Device | None = None
    """The only device that it is for; None: any."""


class Tolerance(_Data):
    """|output - reference| <= atol + rtol * |reference|, element by element."""

    atol: float = Field(ge=0)
    rtol: float = Field(ge=0)
    matched: float = Field(default=1.0, gt=0, le=1)
    """Share of each output's elements that must be within; NaN and infinity where none is expected never pass."""


class Limits(_Data):
    """What a candidate may use."""

    call_s: float = Field(default=5.0, gt=0)
    """Seconds for one call of the entry point."""
    compile_s: float = Field(default=60.0, gt=0)
    memory_mb: int = Field(default=1024, gt=0)
    """Memory beyond the tensors themselves, in MiB."""
    gpu_memory_mb: int = Field(default=8192, gt=0)
    """The same on a GPU."""


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
    params: tuple[str, ...] = ()
    """Names of the double arguments that follow the dims, in order."""
    inputs: tuple[TensorSpec, ...] = Field(min_length=1)
    outputs: tuple[TensorSpec, ...] = Field(min_length=1)
    workloads: tuple[Workload, ...] = Field(min_length=1)
    held_out: tuple[Workload, ...] = ()
    """Workloads that only the final measurement sees; the search's own with new seeds when empty."""
    tolerance: Tolerance
    baselines: tuple[str, ...] = Field(min_length=1)
    """Functions of reference.py to race: the fastest on a workload is its baseline."""
    cuda_baselines: tuple[str, ...] = ()
    """Functions to race as well where programs run on a GPU."""
    flops: tuple[float | str, ...] = ()
    """Numbers and names of dimensions whose product is the number of operations of a call; empty: unknown."""
    limits: Limits = Limits()
    notes: dict[Language, str] = {}
    """Advice for the coder, per language."""
    files: tuple[str, ...] = ()
    """Further files of the folder that reference.py needs, as relative paths."""
    origin: str = ""
    """Where the problem comes from, in a few words."""
    provenance: str = ""
    """What a receipt must say of the inputs, such as that they are synthetic."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [tensor.name for tensor in (*self.inputs, *self.outputs)] + [*self.dims, *self.params]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the name {name!r} is used twice among inputs, outputs, dims and params")
        for workload in (*self.workloads, *self.held_out):
            if set(workload.dims) != set(self.dims):
                raise ValueError(f"workload {workload.name!r} must give exactly the dims {self.dims}")
            if set(workload.params) != set(self.params):
                raise ValueError(f"workload {workload.name!r} must give exactly the params {self.params}")
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

    @model_validator(mode="after")
    def _inside(self) -> Self:
        for name in self.files:
            if not name or Path(name).is_absolute() or ".." in Path(name).parts:
                raise ValueError(f"files: {name!r} is not a path below the task's folder")
        return self

    @model_validator(mode="after")
    def _countable(self) -> Self:
        for factor in self.flops:
            if isinstance(factor, str) and factor not in self.dims:
                raise ValueError(f"flops: {factor!r} is neither a number nor a dimension")
        return self

    @property
    def reference(self) -> Path:
        """The file with make_inputs, reference and the baseline formulations."""
        return self.folder / "reference.py"

    @property
    def carried(self) -> tuple[str, ...]:
        """Relative paths of all files that an evaluation needs."""
        return ("task.toml", "reference.py", *self.files)

    @property
    def playbook(self) -> Path:
        """Folder of hand-written intents for the first language; need not exist."""
        return self.playbook_for(self.languages[0])

    def playbook_for(self, language: Language) -> Path:
        """Folder of hand-written intents for one language; need not exist."""
        return self.folder / "playbook" / language

    @cached_property
    def hash(self) -> str:
        """Sixteen hex digits of all that a verdict depends on: task.toml, reference.py and further files."""
        text = b"\0".join((self.folder / name).read_bytes() for name in self.carried)
        return hashlib.sha256(text).hexdigest()[:16]

    def prototype(self) -> str:
        """The declaration of the entry point in the first language."""
        return prototype(self, self.languages[0])

    @cached_property
    def workload_lines(self) -> str:
        """A line for each workload with its dimensions, as prompts show them."""
        lines = [f"- {load.name}: {', '.join(f'{key} = {value}' for key, value in (load.dims | load.params).items())}"
                 for load in self.workloads]  # fmt: skip
        return "\n".join(lines)

    @cached_property
    def input_line(self) -> str:
        """The inputs with shapes and dtypes, as prompts show them."""
        return described(self.inputs)

    @cached_property
    def output_line(self) -> str:
        """The outputs with shapes and dtypes, as prompts show them."""
        return described(self.outputs)

    def operations(self, dims: dict[str, int]) -> float | None:
        """Operations of a call under these dimensions; None when the task does not say."""
        if not self.flops:
            return None
        return math.prod(dims[factor] if isinstance(factor, str) else factor for factor in self.flops)

    def narrowed(self, language: str | None = None, device: Device = "cpu") -> Task:
        """The task as one language sees it: by default the first one; `device` counts where it may run on either.

        Raises TaskError when the task does not take the language, or has no workload for its device.
        """
        chosen = next((known for known in self.languages if language in (known, None)), None)
        if chosen is None:
            taken = ", ".join(self.languages)
            raise TaskError(f"task {self.name!r} takes programs in {taken}, not in {language!r}: say --language")
        where = DEVICE[chosen] or device
        workloads = tuple(load for load in self.workloads if load.device in (where, None))
        if not workloads:
            raise TaskError(f"{self.folder / 'task.toml'}: workloads: none is for {where}, where {chosen} programs run")
        return self.model_copy(
            update={
                "languages": (chosen,),
                "workloads": workloads,
                "held_out": tuple(load for load in self.held_out if load.device in (where, None)),
                "baselines": self.baselines + (self.cuda_baselines if where == "cuda" else ()),
                "cuda_baselines": (),
            }
        )


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
    for name in task.files:
        if not (folder / name).is_file():
            raise TaskError(f"{file}: files: {name}: there is no such file in {folder}")
    for function in ("make_inputs", "reference", *task.baselines, *task.cuda_baselines):
        if not re.search(rf"^(def {function}\b|{function}\s*[:=])", source, re.MULTILINE):
            raise TaskError(f"{task.reference}: {function}: not defined")
    return task


def find_task(name: str) -> Task:
    """The shipped task of this name, the one in this folder, or SOURCE:REST; TaskError lists what there is."""
    prefix, _, rest = name.partition(":")
    if prefix in SOURCES:
        return load_task(SOURCES[prefix](rest))
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
