"""A FlashInfer-Bench data set of our own, with two small definitions: scaled rows, and sums over paged sequences."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

ROWS: dict[str, Any] = {
    "name": "scaled_rows_w8",
    "op_type": "toy",
    "description": "y = x * scale + shift, and the largest element of each row of y.",
    "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 8}},
    "inputs": {
        "x": {"shape": ["rows", "width"], "dtype": "float32", "description": "What is scaled."},
        "shift": {"shape": None, "dtype": "int32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["rows", "width"], "dtype": "float32"},
        "largest": {"shape": ["rows"], "dtype": "float32"},
    },
    "reference": "import torch\n\n\ndef run(x, shift, scale):\n    y = x * scale + shift\n    return y, y.amax(-1)\n",
}

PAGED: dict[str, Any] = {
    "name": "paged_sums_d4",
    "op_type": "gqa_paged",
    "axes": {
        "num_pages": {"type": "var"}, "len_indptr": {"type": "var"}, "num_kv_indices": {"type": "var"},
        "batch_size": {"type": "var"}, "total_q": {"type": "var"}, "dim": {"type": "const", "value": 4},
    },
    "constraints": ["len_indptr == batch_size + 1", "num_kv_indices == kv_indptr[-1].item()", "x.numel() > 0"],
    "inputs": {
        "cache": {"shape": ["num_pages", "dim"], "dtype": "bfloat16"},
        "qo_indptr": {"shape": ["len_indptr"], "dtype": "int32"},
        "kv_indptr": {"shape": ["len_indptr"], "dtype": "int32"},
        "kv_indices": {"shape": ["num_kv_indices"], "dtype": "int32"},
    },
    "outputs": {"sums": {"shape": ["batch_size", "dim"], "dtype": "float32"}},
    "reference": "import torch\n\ndef run(cache, qo_indptr, kv_indptr, kv_indices):\n"
    "    rows = cache.float()[kv_indices.long()]\n"
    "    ends = kv_indptr.tolist()\n"
    "    return torch.stack([rows[a:b].sum(0) for a, b in zip(ends, ends[1:])])\n",
}  # fmt: skip

BLOB = "./blob/workloads/gqa_paged/paged_sums_d4/tables.safetensors"


def rows_workload(uuid: str, rows: int, shift: Any = 3, scale: Any = 0.5) -> dict[str, Any]:
    """A workload of ROWS."""
    scalars = {"shift": {"type": "scalar", "value": shift}, "scale": {"type": "scalar", "value": scale}}
    return {"axes": {"rows": rows}, "inputs": {"x": {"type": "random"}, **scalars}, "uuid": uuid}


def paged_workload(uuid: str, **axes: int) -> dict[str, Any]:
    """A workload of PAGED whose tables lie in BLOB."""
    sizes = {"num_pages": 50, "len_indptr": 4, "num_kv_indices": 20, "batch_size": 3, "total_q": 7} | axes
    names = ("qo_indptr", "kv_indptr", "kv_indices")
    tables = {name: {"type": "safetensors", "path": BLOB, "tensor_key": name} for name in names}
    return {"axes": sizes, "inputs": {"cache": {"type": "random"}, **tables}, "uuid": uuid}


def write_dataset(root: Path, definition: dict[str, Any], workloads: list[dict[str, Any]]) -> Path:
    """The data set with this definition in it."""
    name, op = definition["name"], definition["op_type"]
    for folder in ("definitions", "workloads"):
        (root / folder / op).mkdir(parents=True, exist_ok=True)
    (root / "definitions" / op / f"{name}.json").write_text(json.dumps(definition))
    lines = [
        json.dumps({"definition": name, "solution": None, "workload": load, "evaluation": None}) for load in workloads
    ]
    (root / "workloads" / op / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return root


def write_blob(root: Path, **tensors: tuple[str, list[int], bytes]) -> None:
    """A safetensors file at BLOB: dtype, shape and contents of each tensor."""
    header, contents = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(contents), len(contents) + len(data)]}
        contents += data
    text = json.dumps(header).encode()
    file = root / BLOB
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(struct.pack("<Q", len(text)) + text + contents)


def int32(*values: int) -> tuple[str, list[int], bytes]:
    """A tensor for `write_blob`."""
    return "I32", [len(values)], struct.pack(f"<{len(values)}i", *values)
