"""How a program that returns its outputs hands them over, in its own process: checked, and copied into the arena.

What is used here is bound before any code of the program runs, and the trusted side knows how long copying takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tasks.structure import Tensors, Unfit, laid_out, leaves, put_together

DELIVER = b"deliver"
"""The request, and its answer, that follows a call: the outputs are in the arena."""
KEPT = 4
"""So many times the largest outputs are beside what a program may use: it allocates them itself."""
_HUGE = 1 << 30
_SHOWN = 2000

Layout = dict[str, Any]
"""Of one workload: tensors with name, offset, size, dtype, shape and strides; trees of the data and the outputs."""


def tensors_of(memory: torch.Tensor, layout: Layout) -> Tensors:
    """Fresh views of the shared block, by name."""
    found = {}
    for item in layout["tensors"]:
        part = memory[item["offset"] : item["offset"] + item["size"]]
        found[item["name"]] = laid_out(part.view(getattr(torch, item["dtype"])), item["shape"], item["strides"])
    return found


def arguments_of(memory: torch.Tensor, layout: Layout, call: str) -> list[Any]:
    """What the entry point is called with: fresh views, in fresh containers."""
    tensors = tensors_of(memory, layout)
    if call == "tensors":
        return [*tensors.values(), *layout["dims"], *layout["params"]]
    data = put_together(layout["data"], tensors)
    return [data] if call == "data" else list(data)


class Handover:
    """Copies of what was returned into the arena."""

    def __init__(self, memory: torch.Tensor, layouts: list[Layout], synchronize: Callable[[], object]) -> None:
        self._memory = memory
        self._layouts = layouts
        self._synchronize = synchronize
        self._copy = torch.Tensor.copy_
        self._plain = torch._C.DisableTorchFunction
        self._bare: Any = torch._C._DisableTorchDispatch
        self._stand_in: tuple[int, Any] = (-1, None)

    def trial(self, index: int) -> bytes:
        """As `deliver`, of tensors that are there since the first trial: shows what copying costs."""
        layout = self._layouts[index]
        if self._stand_in[0] != index:
            tensors = tensors_of(self._memory, layout)
            copies = {name: value.clone() for name, value in tensors.items()}
            self._stand_in = index, put_together(layout["returned"], copies)
        return self.deliver(index, self._stand_in[1])

    def forget(self) -> None:
        """The tensors of the trials are gone; on a CPU malloc keeps memory for outputs, unless they are huge.

        The first calls are not slower for page faults then.
        """
        self._stand_in = (-1, None)
        sizes = [sum(item["size"] for item in layout["tensors"] if item["returned"]) for layout in self._layouts]
        most = max(sizes, default=0)
        if not self._memory.is_cuda and most < _HUGE:
            torch.empty(KEPT * most, dtype=torch.uint8).fill_(1)

    def deliver(self, index: int, result: Any) -> bytes:
        """DELIVER, once the outputs are in the arena; otherwise "?" and what is wrong with them."""
        with self._plain(), self._bare():
            layout = self._layouts[index]
            try:
                found = leaves(layout["returned"], result, "output")
            except Unfit as error:
                return _refusal(str(error))
            targets = tensors_of(self._memory, layout)
            for name, leaf in found:
                if fault := _fault(name, leaf, targets[name]):
                    return _refusal(fault)
            for name, leaf in found:
                self._copy(targets[name], leaf)
            self._synchronize()
        return DELIVER


def _fault(name: str, leaf: Any, target: torch.Tensor) -> str:
    """What keeps a returned value from being this output; a subclass of Tensor could compute when it is read."""
    if leaf is None:
        return f"{name} is None: the entry point must return its outputs"
    if type(leaf) is not torch.Tensor:
        return f"{name} is a {type(leaf).__name__}, and must be exactly a torch.Tensor"
    if leaf.layout != torch.strided:
        return f"{name} is a tensor of layout {leaf.layout}, and must be a dense one"
    if leaf.shape != target.shape:
        return f"{name} has shape {list(leaf.shape)} instead of {list(target.shape)}"
    if leaf.dtype != target.dtype:
        return f"{name} has dtype {leaf.dtype} instead of {target.dtype}"
    if leaf.device != target.device:
        return f"{name} is on {leaf.device} instead of {target.device}"
    return ""


def _refusal(text: str) -> bytes:
    return b"?" + text.encode(errors="replace")[:_SHOWN]
