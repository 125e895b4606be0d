"""What a task is made of: tensors, workloads, tolerances and limits."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tasks.workloads import Values

Device = Literal["cpu", "cuda"]

Identifier = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
_EXTENT = re.compile(r"^([A-Za-z_]\w*)(?:/([1-9]\d*))?$")


class Data(BaseModel):
    """Frozen; takes no key that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorSpec(Data):
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


class Workload(Data):
    """One set of dimensions that the program is checked and timed on."""

    name: str
    dims: dict[str, Annotated[int, Field(ge=0)]] = {}
    params: dict[str, float] = {}
    """Values of the task's params."""
    args: dict[str, bool | int | float | str] = {}
    """What make_inputs is given, where the task's `call` is not "tensors"."""
    device: Device | None = None
    """The only device that it is for; None: any."""

    @property
    def values(self) -> Values:
        """All that it is made of, by name."""
        return {**self.dims, **self.params, **self.args}


class Tolerance(Data):
    """|output - reference| <= atol + rtol * |reference|, element by element; and row by row where row_norm is given."""

    atol: float = Field(ge=0)
    rtol: float = Field(ge=0)
    matched: float = Field(default=1.0, gt=0, le=1)
    """Share of each output's elements that must be within; NaN and infinity where none is expected never pass."""
    row_norm: float | None = Field(default=None, gt=0)
    """Norm of (output - reference) over that of the reference, at most, in each row (along the last axis)."""


class Limits(Data):
    """What a candidate may use."""

    call_s: float = Field(default=5.0, gt=0)
    """Seconds for one call of the entry point."""
    compile_s: float = Field(default=60.0, gt=0)
    memory_mb: int = Field(default=1024, gt=0)
    """Memory beyond the tensors themselves, in MiB."""
    gpu_memory_mb: int = Field(default=8192, gt=0)
    """The same on a GPU."""
