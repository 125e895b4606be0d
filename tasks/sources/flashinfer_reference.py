"""Inputs and the right answer of a FlashInfer-Bench definition: the answer is the data set's own reference."""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import math
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_FOLDER = Path(__file__).parent
_RANGES = {torch.int8: (-128, 128), torch.bool: (0, 2)}
_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8",
    "BOOL": "bool",
}  # fmt: skip


@functools.cache
def _data(name: str) -> Any:
    return json.loads((_FOLDER / name).read_text(encoding="utf-8"))


@functools.cache
def _run() -> Callable[..., Any]:
    """The function of the data set's own reference."""
    spec = importlib.util.spec_from_file_location("definition_reference", _FOLDER / "definition_reference.py")
    if spec is None or spec.loader is None:
        raise ImportError("definition_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run: Callable[..., Any] = module.run
    return run


def make_inputs(generator: torch.Generator, workload: str, **values: float) -> dict[str, torch.Tensor]:
    """Random inputs are drawn as FlashInfer-Bench draws them; the others are the workload's own, always the same."""
    definition, sources = _data("definition.json"), _data("workloads.json")[workload]["sources"]
    made = {}
    for name, source in sources.items():
        spec = definition["inputs"][name]
        dtype = getattr(torch, spec["dtype"])
        if "file" in source:
            made[name] = _stored(source, dtype).to(generator.device)
        else:
            axes = [definition["axes"][axis].get("value", values.get(axis)) for axis in spec["shape"]]
            made[name] = drawn([int(extent) for extent in axes], dtype, generator)
            if source.get("softmax"):
                made[name] = torch.softmax(made[name], dim=-1)
    return made


def drawn(shape: list[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Normal numbers (of 8 bits: cut at -2 and 2), or uniform integers in [-1024, 1024) (8 bits: [-128, 128))."""
    device = generator.device
    if dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        return torch.randn(shape, generator=generator, device=device).clamp_(-2.0, 2.0).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator, device=device, dtype=dtype)
    low, high = _RANGES.get(dtype, (-1024, 1024))
    return torch.randint(low, high, shape, generator=generator, device=device, dtype=dtype)


@functools.lru_cache(maxsize=64)
def _bytes(file: str, key: str) -> tuple[list[int], bytes]:
    """Shape and contents of a tensor that came with the data set, or lies in it."""
    if not key:
        stored = _data(file)
        return stored["shape"], base64.b64decode(stored["base64"])
    noted = _FOLDER / "dataset.txt"
    root = os.environ.get("FIB_DATASET_PATH") or (noted.read_text(encoding="utf-8") if noted.is_file() else "")
    path = Path(root or ".") / file
    if not path.is_file():
        raise FileNotFoundError(
            f"{file} of the data set is too large to travel with a request: set FIB_DATASET_PATH on this machine to "
            "the folder of a copy of the data set"
        )
    return safetensor(path, key)[1:]


def _stored(source: dict[str, Any], dtype: torch.dtype) -> torch.Tensor:
    shape, contents = _bytes(source["file"], source.get("key", ""))
    if not contents:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(contents), dtype=torch.uint8).view(dtype).view(shape)


def safetensor(path: Path, key: str) -> tuple[str, list[int], bytes]:
    """Dtype, shape and little-endian contents of one tensor of a safetensors file; ValueError when it is not in it."""
    with path.open("rb") as file:
        try:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > path.stat().st_size:
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(length))
            entry = header[key]
            dtype, shape, (start, end) = _DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        except KeyError as error:
            raise ValueError(f"it has no {error}") from None
        except (struct.error, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"not a safetensors file ({error})") from None
        file.seek(8 + length + start)
        contents = file.read(end - start)
    if len(contents) != math.prod(shape) * getattr(torch, dtype).itemsize:
        raise ValueError(f"{key} is cut off")
    return dtype, shape, contents


def answer(*arguments: Any) -> tuple[torch.Tensor, ...]:
    """The outputs of the data set's own reference, as tensors of the promised dtypes."""
    outputs = _data("definition.json")["outputs"]
    with torch.no_grad():
        found = _run()(*arguments)
    if isinstance(found, dict):
        found = [found[name] for name in outputs]
    elif not isinstance(found, tuple | list):
        found = [found]
    if len(found) != len(outputs):
        raise ValueError(f"run returns {len(found)} values, not {len(outputs)}")
    device = next((value.device for value in arguments if isinstance(value, torch.Tensor)), None)
    pairs = zip(found, outputs.values(), strict=True)
    return tuple(torch.as_tensor(value, device=device).to(getattr(torch, spec["dtype"])) for value, spec in pairs)
