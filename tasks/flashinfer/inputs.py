"""Where the inputs of a definition's workloads come from: drawn anew, read from the data set, or made up."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any

from tasks.errors import TaskError
from tasks.flashinfer.data import Definition, SafetensorsInput, Tensor, Workload

CARRIED = 1 << 20
"""Bytes of a tensor above which it stays in the data set and does not travel with requests."""
_POINTER = b"version https://git-lfs"
_PACKED = {"int8": "b", "int16": "h", "int32": "i", "int64": "q"}
_ROUTING = {"routing_logits", "routing_bias"}
_TABLES = {"kv_indptr", "qo_indptr", "kv_indices"}
_FLOW = {"kv_indptr": ("num_kv_indices", "total_kv"), "qo_indptr": ("total_q",)}
"""Axes that may say where the last offset of a pointer array is."""


class Inputs:
    """Gathers, workload by workload, what reference.py needs to make the inputs."""

    def __init__(self, definition: Definition, root: Path) -> None:
        self.texts: dict[str, str] = {}
        """Further files of the task's folder."""
        self.integers: dict[str, list[int]] = {}
        """The integer tensors of the latest workload that are known."""
        self._definition, self._root = definition, root
        self._synthetic: dict[str, set[str]] = {}

    def provenance(self, count: int) -> str:
        """What a receipt must say of the inputs of `count` workloads; empty when nothing was made up."""
        parts = []
        for what, uuids in sorted(self._synthetic.items()):
            parts.append(what + ("" if len(uuids) == count else f" ({len(uuids)} of {count} workloads)"))
        return ", ".join(parts)

    def sources(self, row: Workload, place: str) -> dict[str, dict[str, Any]]:
        """For each input tensor of a workload where it comes from. Raises TaskError."""
        self.integers = {}
        made = None
        found: dict[str, dict[str, Any]] = {}
        for name, spec in self._definition.tensors.items():
            source = row.inputs.get(name)
            key = f"{place}: workload.inputs.{name}"
            if source is None or source.type == "random":
                sampled = self._definition.op_type == "sampling" and name == "probs"
                found[name] = {"softmax": True} if sampled else {}
            elif source.type == "scalar":
                raise TaskError(f"{key}: a scalar, but the definition says that it is a tensor")
            elif self._there(source):
                found[name] = self._stored(name, spec, row, (source, key))
            elif name in _ROUTING:
                self._synthetic.setdefault("synthetic routing", set()).add(row.uuid)
                found[name] = {}
            elif name in _TABLES and spec.dtype in _PACKED:
                made = made or page_tables(self._definition, row, key)
                self._synthetic.setdefault("synthetic page tables", set()).add(row.uuid)
                found[name] = self._integers(name, spec, made[name])
            else:
                raise TaskError(
                    f"{key}: {self._root / source.path}: there is no such file (tensor {source.tensor_key!r}), and "
                    "nothing is known about how to make up such an input"
                )
        return found

    def _there(self, source: SafetensorsInput) -> bool:
        """Whether the file is there, and not only a pointer of Git LFS."""
        file = self._root / source.path
        if not file.is_file():
            return False
        with file.open("rb") as opened:
            return not opened.read(len(_POINTER)).startswith(_POINTER)

    def _stored(self, name: str, spec: Tensor, row: Workload, given: tuple[SafetensorsInput, str]) -> dict[str, Any]:
        from tasks.sources.flashinfer_reference import safetensor  # it imports torch

        source, key = given
        file = self._root / source.path
        try:
            dtype, shape, contents = safetensor(file, source.tensor_key)
        except (OSError, ValueError) as error:
            raise TaskError(f"{key}: {file}: {source.tensor_key}: {error}") from None
        wanted = self._definition.extents(spec, row.axes)
        if (dtype, shape) != (spec.dtype, wanted):
            raise TaskError(f"{key}: {file}: {source.tensor_key}: is {dtype} {shape}, not {spec.dtype} {wanted}")
        if dtype in _PACKED:
            self.integers[name] = _unpacked(dtype, contents)
        if len(contents) <= CARRIED:
            return self._kept(shape, contents)
        digest = hashlib.sha256(contents).hexdigest()
        return {"file": source.path, "key": source.tensor_key, "sha256": digest}

    def _integers(self, name: str, spec: Tensor, values: list[int]) -> dict[str, Any]:
        self.integers[name] = values
        return self._kept([len(values)], struct.pack(f"<{len(values)}{_PACKED[spec.dtype]}", *values))

    def _kept(self, shape: list[int], contents: bytes) -> dict[str, Any]:
        text = json.dumps({"shape": shape, "base64": base64.b64encode(contents).decode()})
        file = f"blobs/{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        self.texts[file] = text
        return {"file": file}


def _unpacked(dtype: str, contents: bytes) -> list[int]:
    code = _PACKED[dtype]
    return list(struct.unpack(f"<{len(contents) // struct.calcsize(code)}{code}", contents))


def page_tables(definition: Definition, row: Workload, key: str) -> dict[str, list[int]]:
    """Offsets and page numbers of a paged or ragged batch, under a seed that the workload's uuid gives.

    Every sequence has at least one query and one page where the totals allow it, and as many pages as its queries need.
    """
    chance = random.Random(f"{definition.name}/{row.uuid}")
    made: dict[str, list[int]] = {}
    queries: list[int] = []
    for name in ("qo_indptr", "kv_indptr"):
        if name not in definition.tensors:
            continue
        length = definition.extents(definition.tensors[name], row.axes)
        total = next((row.axes[axis] for axis in _FLOW[name] if axis in row.axes), None)
        if len(length) != 1 or length[0] < 1 or total is None:
            raise TaskError(f"{key}: cannot be made up: the axes do not say how long {name} is and where it ends")
        least = queries if name == "kv_indptr" and len(queries) == length[0] - 1 else []
        parts = _parts(total, length[0] - 1, least, chance)
        queries = queries or parts
        made[name] = [sum(parts[:index]) for index in range(len(parts) + 1)]
    pages = row.axes.get("num_pages")
    if "kv_indices" in definition.tensors:
        (count,) = definition.extents(definition.tensors["kv_indices"], row.axes)
        if pages is None:
            raise TaskError(f"{key}: cannot be made up: no axis num_pages says how many pages there are")
        made["kv_indices"] = (
            chance.sample(range(pages), count) if count <= pages else chance.choices(range(pages), k=count)
        )
    return made


def _parts(total: int, count: int, least: list[int], chance: random.Random) -> list[int]:
    """`count` numbers with this sum, each at least as large as in `least` (else 1) where that is possible."""
    floor = least if sum(least) <= total and least else [1] * count
    if sum(floor) > total:
        floor = [0] * count
    cuts = sorted(chance.randint(0, total - sum(floor)) for _ in range(count - 1))
    edges = [0, *cuts, total - sum(floor)]
    return [edges[index + 1] - edges[index] + floor[index] for index in range(count)]


_CHECKED = (
    ast.Expression, ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Name, ast.Constant, ast.Load, ast.operator,
    ast.unaryop, ast.cmpop, ast.boolop, ast.Subscript,
)  # fmt: skip


def violated(definition: Definition, row: Workload, integers: dict[str, list[int]]) -> str:
    """The first constraint that does not hold; empty when there is none.

    Constraints that need what is not known yet, such as the values of random inputs, are passed over.
    """
    known: dict[str, Any] = {**row.axes, **integers}
    known |= {name: axis.value for name, axis in definition.axes.items() if axis.type == "const"}
    for constraint in definition.constraints:
        tree = ast.parse(constraint.replace(".item()", ""), mode="eval")
        nodes = list(ast.walk(tree))
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        if not names <= known.keys() or not all(isinstance(node, _CHECKED) for node in nodes):
            continue
        try:
            holds = eval(compile(tree, "constraint", "eval"), {"__builtins__": {}}, known)
        except (ArithmeticError, LookupError, TypeError) as error:
            return f"constraints: {constraint!r} cannot be worked out ({error})"
        if not holds:
            return f"constraints: {constraint!r} does not hold for axes {row.axes}"
    return ""
