"""Memory shared by the trusted process and a candidate: tensors between guard zones. Standard library, torch."""

from __future__ import annotations

import mmap
import random
from dataclasses import dataclass
from typing import Any

import torch

from tasks.memory import same_bytes, shared_memory
from tasks.problem import Load, Spec, Tensors
from tasks.structure import as_it_lies, laid_out

GUARD = 16384
"""Bytes of guard zone before, between and after the tensors."""
ALIGNMENT = 64
_PIECES = 16
_PIECE = 8
"""Of each input so many pieces, of so many bytes, are held back until the call is timed."""
_WRONG = 0x55


@dataclass(frozen=True)
class Breach:
    """A guard zone that a candidate changed."""

    tensor: str
    side: str
    distance: int
    """Bytes between the tensor and the nearest changed byte."""


class Arena:
    """One shared block of memory that holds any one of the workloads at a time."""

    def __init__(self, loads: list[Load], kind: str) -> None:
        """On the device of a kind, "cpu" or "cuda"."""
        self.offsets = {load.name: _offsets(load) for load in loads}
        self.size = max(_end(load, self.offsets[load.name]) for load in loads)
        self._memory = shared_memory(kind, self.size)
        self._bytes = self._memory.bytes
        self._canary = torch.randint(0, 256, (GUARD + ALIGNMENT,), dtype=torch.uint8).to(kind)
        self._poison = {(load.name, spec.name): _poison(spec).to(kind) for load in loads for spec in load.outputs}
        self._held = torch.arange(_PIECE, device=kind)
        self._right = self._bytes[self._held]
        self._kept: Tensors = {}

    @property
    def host_bytes(self) -> int:
        """How much of a process's memory the block is; none when it lies on a device."""
        return self.size if self.fds else 0

    @property
    def fds(self) -> tuple[int, ...]:
        """Descriptors that the candidate's process must inherit."""
        return self._memory.fds

    def grant(self) -> dict[str, Any]:
        """What the candidate must be told to map the block."""
        return self._memory.grant()

    def write(self, load: Load, inputs: Tensors) -> None:
        """The inputs are in place but for some pieces, outputs hold poison, and guards their canaries.

        No OpenMP thread is woken.
        """
        offsets = self.offsets[load.name]
        for start, end in self._guards(load):
            self._memory.fill(start, self._canary[: end - start])
        for spec in load.inputs:
            self._memory.fill(offsets[spec.name], as_it_lies(inputs[spec.name]))
        self._hold_back(load)
        self.poison(load)

    def poison(self, load: Load) -> None:
        """The outputs hold poison."""
        for spec in load.outputs:
            self._memory.fill(self.offsets[load.name][spec.name], self._poison[load.name, spec.name])

    def _hold_back(self, load: Load) -> None:
        """Random pieces of the inputs are wrong: what is computed before the call is timed will not do."""
        places: list[int] = []
        for spec in load.inputs:
            length = min(_PIECE, spec.nbytes)
            for _ in range(_PIECES):
                at = self.offsets[load.name][spec.name] + random.randrange(spec.nbytes - length + 1)
                places.extend(range(at, at + length))
        held = torch.tensor(places)
        self._held = held.to(self._bytes.device)
        self._right = self._bytes[self._held]
        self._bytes[self._held] = self._right ^ _WRONG

    def complete(self) -> None:
        """The inputs are as they were given to `write`."""
        self._bytes[self._held] = self._right
        if self._bytes.is_cuda:
            torch.cuda.synchronize()

    def keep(self, load: Load) -> None:
        """The outputs of this moment are remembered."""
        self._kept = {name: value.clone() for name, value in self.outputs(load).items()}
        if self._bytes.is_cuda:
            torch.cuda.synchronize()

    def changed(self, load: Load) -> str | None:
        """Name of an output that is no longer what was kept."""
        outputs = self.outputs(load)
        return next((name for name, kept in self._kept.items() if not same_bytes(outputs[name], kept)), None)

    def outputs(self, load: Load) -> Tensors:
        """Views of the output tensors as they are now."""
        return {spec.name: self._view(load, spec) for spec in load.outputs}

    def unwritten(self, load: Load, spec: Spec) -> torch.Tensor:
        """For each element of an output whether it still holds its poison."""
        width = spec.dtype.itemsize
        got = as_it_lies(self._view(load, spec)).view(torch.uint8).view(-1, width)
        poison = self._poison[load.name, spec.name].reshape(-1).view(torch.uint8).view(-1, width)
        return laid_out((got == poison).all(dim=1), spec.shape, spec.strides)

    def mutated(self, load: Load, inputs: Tensors) -> str | None:
        """Name of an input that no longer holds what was written, and may not be written to."""
        for spec in load.inputs:
            if not spec.writable and not same_bytes(self._view(load, spec), inputs[spec.name]):
                return spec.name
        return None

    def breach(self, load: Load) -> Breach | None:
        """The guard zone that was written to, if any."""
        for start, end in self._guards(load):
            canary = self._canary[: end - start]
            if same_bytes(self._bytes[start:end], canary):
                continue
            changed = (self._bytes[start:end] != canary).nonzero().flatten() + start
            return self._nearest(load, changed)
        return None

    def close(self) -> None:
        """The memory is given back."""
        del self._bytes
        self._memory.close()

    def _nearest(self, load: Load, changed: torch.Tensor) -> Breach:
        first, last = int(changed[0]), int(changed[-1])
        breaches = []
        for spec in (*load.inputs, *load.outputs):
            start = self.offsets[load.name][spec.name]
            end = start + spec.nbytes
            if first >= end:
                breaches.append(Breach(spec.name, "after the end", first - end))
            elif last < start:
                breaches.append(Breach(spec.name, "before the start", start - 1 - last))
        outputs = {spec.name for spec in load.outputs}
        return min(breaches, key=lambda breach: (breach.distance, breach.tensor not in outputs))

    def _guards(self, load: Load) -> list[tuple[int, int]]:
        zones, at = [], 0
        for spec in (*load.inputs, *load.outputs):
            start = self.offsets[load.name][spec.name]
            zones.append((at, start))
            at = start + spec.nbytes
        return [*zones, (at, at + GUARD)]

    def _view(self, load: Load, spec: Spec) -> torch.Tensor:
        start = self.offsets[load.name][spec.name]
        return laid_out(self._bytes[start : start + spec.nbytes].view(spec.dtype), spec.shape, spec.strides)


def _offsets(load: Load) -> dict[str, int]:
    offsets, at = {}, 0
    for spec in (*load.inputs, *load.outputs):
        at = -(-(at + GUARD) // ALIGNMENT) * ALIGNMENT
        offsets[spec.name] = at
        at += spec.nbytes
    return offsets


def _end(load: Load, offsets: dict[str, int]) -> int:
    last = load.outputs[-1]
    size = offsets[last.name] + last.nbytes + GUARD
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE


def _poison(spec: Spec) -> torch.Tensor:
    """A pattern that no kernel computes: NaN with a random payload, or random bytes for integers."""
    if spec.dtype.is_floating_point:
        if spec.dtype.itemsize == 1:
            return torch.full(spec.shape, 0x7F, dtype=torch.uint8)
        quiet = {2: 0x7FC0, 4: 0x7FC00000, 8: 0x7FF8000000000000}[spec.dtype.itemsize]
        if spec.dtype == torch.float16:
            quiet = 0x7E00
        bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[spec.dtype.itemsize]
        payload = int(torch.randint(1, 32, (1,)))
        return torch.full(spec.shape, quiet | payload, dtype=bits)
    return torch.randint(0, 256, (*spec.shape, spec.dtype.itemsize), dtype=torch.uint8)
