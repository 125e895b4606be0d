"""Nested data as a tree of plain values with named tensors, and back again. Standard library and torch only."""

from __future__ import annotations

from typing import Any

import torch

Tree = dict[str, Any]
"""JSON-plain, with one key: tensor (its name), tuple, list, dict (pairs), dtype or plain."""
Tensors = dict[str, torch.Tensor]

PLAIN = (bool, int, float, str, type(None))


class Unfit(ValueError):
    """A value that has no place in a tree; the message begins with its path."""


def taken_apart(value: Any, path: str) -> tuple[Tree, Tensors]:
    """The tree of a value and its tensors by path, such as "data.2.weight". Raises Unfit."""
    found: Tensors = {}
    return _taken_apart(value, path, found), found


def _taken_apart(value: Any, path: str, found: Tensors) -> Tree:
    if isinstance(value, torch.Tensor):
        if path in found:
            raise Unfit(f"{path} is the path of two tensors: no key may hold a dot that leads to another one")
        found[path] = value
        return {"tensor": path}
    if type(value) in (tuple, torch.Size, list):
        parts = [_taken_apart(item, f"{path}.{index}", found) for index, item in enumerate(value)]
        return {"list" if type(value) is list else "tuple": parts}
    if isinstance(value, dict):
        for key in value:
            if type(key) not in PLAIN:
                raise Unfit(f"{path} has a key that is a {type(key).__name__}")
        return {"dict": [[key, _taken_apart(item, f"{path}.{key}", found)] for key, item in value.items()]}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if type(value) in PLAIN:
        return {"plain": value}
    raise Unfit(
        f"{path} is a {type(value).__name__}: only tensors, tuples, lists, dicts, None, bool, int, float, str and "
        "torch.dtype can be handed over"
    )


def put_together(tree: Tree, tensors: Tensors) -> Any:
    """The value of a tree, over these tensors; its tuples, lists and dicts are new ones."""
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: put_together(item, tensors) for key, item in content}
    if kind in ("tuple", "list"):
        items = [put_together(item, tensors) for item in content]
        return items if kind == "list" else tuple(items)
    return getattr(torch, content) if kind == "dtype" else content


def leaves(tree: Tree, value: Any, path: str) -> list[tuple[str, Any]]:
    """By name what a value has where the tree has tensors, whatever it is. Raises Unfit for another structure.

    Tuples and lists stand for each other.
    """
    ((kind, content),) = tree.items()
    if kind == "tensor":
        return [(content, value)]
    if kind == "dict":
        if type(value) is not dict or set(value) != {key for key, _ in content}:
            raise Unfit(
                f"{path} must be a dict with the keys {[key for key, _ in content]}, and is {_described(value)}"
            )
        return [leaf for key, item in content for leaf in leaves(item, value[key], f"{path}.{key}")]
    if kind in ("tuple", "list"):
        if type(value) not in (tuple, list) or len(value) != len(content):
            raise Unfit(f"{path} must be a tuple of {len(content)}, and is {_described(value)}")
        pairs = enumerate(zip(content, value, strict=True))
        return [leaf for index, (item, part) in pairs for leaf in leaves(item, part, f"{path}.{index}")]
    return []


def plain_parts(tree: Tree, path: str) -> list[str]:
    """Paths of what is neither a tensor nor holds any."""
    ((kind, content),) = tree.items()
    if kind == "dict":
        return [found for key, item in content for found in plain_parts(item, f"{path}.{key}")]
    if kind in ("tuple", "list"):
        return [found for index, item in enumerate(content) for found in plain_parts(item, f"{path}.{index}")]
    return [] if kind == "tensor" else [path]


def _described(value: Any) -> str:
    size = f" of {len(value)}" if type(value) in (tuple, list, dict) else ""
    return "None" if value is None else f"a {type(value).__name__}{size}"


def dense_strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Strides of a tensor whose elements fill its memory in another order than row-major; None for any other."""
    if tensor.is_contiguous():
        return None
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent == 1:
            continue
        if stride != expected:
            return None
        expected *= extent
    return tuple(tensor.stride())


def as_it_lies(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a dense tensor in the order in which they lie in memory, without a copy."""
    return tensor.as_strided((tensor.numel(),), (1,))


def laid_out(flat: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> torch.Tensor:
    """Elements in the order in which they lie in memory, seen with this shape."""
    return flat.view(shape) if strides is None else flat.as_strided(shape, strides)
