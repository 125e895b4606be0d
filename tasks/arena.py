"""Memory shared by the trusted process and a candidate: tensors between guard zones. Standard library, torch."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import random
from dataclasses import dataclass

import torch

from tasks.problem import Load, Spec, Tensors

GUARD = 16384
"""Bytes of guard zone before, between and after the tensors."""
ALIGNMENT = 64
_PIECES = 16
_PIECE = 8
"""Of each input so many pieces, of so many bytes, are held back until the call is timed."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_LIBC = ctypes.CDLL(None)
_LIBC.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two contiguous tensors of one shape and dtype hold the same bits."""
    size = left.numel() * left.element_size()
    return int(_LIBC.memcmp(left.data_ptr(), right.data_ptr(), size)) == 0


@dataclass(frozen=True)
class Breach:
    """A guard zone that a candidate changed."""

    tensor: str
    side: str
    distance: int
    """Bytes between the tensor and the nearest changed byte."""


class Arena:
    """One shared mapping that holds any one of the workloads at a time."""

    def __init__(self, loads: list[Load]) -> None:
        self.offsets = {load.name: _offsets(load) for load in loads}
        self.size = max(_end(load, self.offsets[load.name]) for load in loads)
        self.fd = os.memfd_create("ksearch-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)  # a candidate that cut it short would end whoever reads it
        self._map = mmap.mmap(self.fd, self.size)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        self._canary = torch.randint(0, 256, (GUARD + ALIGNMENT,), dtype=torch.uint8)
        self._held: list[tuple[int, bytes]] = []
        self._kept = {(load.name, spec.name): torch.zeros(spec.nbytes, dtype=torch.uint8)
                      for load in loads for spec in load.outputs}  # fmt: skip
        self._poison = {(load.name, spec.name): _poison(spec) for load in loads for spec in load.outputs}

    def write(self, load: Load, inputs: Tensors) -> None:
        """The inputs are in place but for some pieces, outputs hold poison, and guards their canaries.

        No OpenMP thread is woken.
        """
        offsets = self.offsets[load.name]
        for start, end in self._guards(load):
            ctypes.memmove(self._address(start), self._canary.data_ptr(), end - start)
        for spec in load.inputs:
            ctypes.memmove(self._address(offsets[spec.name]), inputs[spec.name].data_ptr(), spec.nbytes)
        self._hold_back(load)
        for spec in load.outputs:
            pattern = self._poison[load.name, spec.name]
            ctypes.memmove(self._address(offsets[spec.name]), pattern.data_ptr(), spec.nbytes)

    def _hold_back(self, load: Load) -> None:
        """Random pieces of the inputs are wrong: what is computed before the call is timed will not do."""
        self._held.clear()
        for spec in load.inputs:
            length = min(_PIECE, spec.nbytes)
            for _ in range(_PIECES):
                at = self.offsets[load.name][spec.name] + random.randrange(spec.nbytes - length + 1)
                self._held.append((self._address(at), self._map[at : at + length]))
        for address, piece in self._held:
            ctypes.memmove(address, bytes(byte ^ 0x55 for byte in piece), len(piece))

    def complete(self) -> None:
        """The inputs are as they were given to `write`."""
        for address, piece in self._held:
            ctypes.memmove(address, piece, len(piece))

    def keep(self, load: Load) -> None:
        """The outputs of this moment are remembered."""
        for spec in load.outputs:
            start = self.offsets[load.name][spec.name]
            ctypes.memmove(self._kept[load.name, spec.name].data_ptr(), self._address(start), spec.nbytes)

    def changed(self, load: Load) -> str | None:
        """Name of an output that is no longer what was kept."""
        for spec in load.outputs:
            start = self.offsets[load.name][spec.name]
            if not same_bytes(self._bytes[start : start + spec.nbytes], self._kept[load.name, spec.name]):
                return spec.name
        return None

    def outputs(self, load: Load) -> Tensors:
        """Views of the output tensors as they are now."""
        return {spec.name: self._view(load, spec) for spec in load.outputs}

    def unwritten(self, load: Load, spec: Spec) -> torch.Tensor:
        """For each element of an output whether it still holds its poison."""
        width = spec.dtype.itemsize
        got = self._view(load, spec).reshape(-1).view(torch.uint8).view(-1, width)
        poison = self._poison[load.name, spec.name].reshape(-1).view(torch.uint8).view(-1, width)
        return (got == poison).all(dim=1).view(spec.shape)

    def mutated(self, load: Load, inputs: Tensors) -> str | None:
        """Name of an input that no longer holds what was written."""
        for spec in load.inputs:
            if not same_bytes(self._view(load, spec), inputs[spec.name]):
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
        """The descriptor is closed; the mapping lives as long as the views of it."""
        os.close(self.fd)

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
        return self._bytes[start : start + spec.nbytes].view(spec.dtype).view(spec.shape)

    def _address(self, offset: int) -> int:
        return self._bytes.data_ptr() + offset


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
        quiet = {2: 0x7FC0, 4: 0x7FC00000, 8: 0x7FF8000000000000}[spec.dtype.itemsize]
        if spec.dtype == torch.float16:
            quiet = 0x7E00
        bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[spec.dtype.itemsize]
        payload = int(torch.randint(1, 32, (1,)))
        return torch.full(spec.shape, quiet | payload, dtype=bits)
    return torch.randint(0, 256, (*spec.shape, spec.dtype.itemsize), dtype=torch.uint8)
