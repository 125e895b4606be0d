"""Memory that the trusted process and a candidate both see: a memfd on a CPU, CUDA IPC on a GPU."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from typing import Any, Protocol

import torch

from tasks.driver import Driver
from tasks.structure import as_it_lies

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_LIBC = ctypes.CDLL(None)
_LIBC.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two dense tensors of one shape, dtype and layout hold the same bits."""
    if left.is_cuda:
        return bool(torch.equal(as_it_lies(left).view(torch.uint8), as_it_lies(right).view(torch.uint8)))
    size = left.numel() * left.element_size()
    return int(_LIBC.memcmp(left.data_ptr(), right.data_ptr(), size)) == 0


class Shared(Protocol):
    """One block of shared memory, as its owner holds it."""

    bytes: torch.Tensor
    """The whole block, uint8."""
    fds: tuple[int, ...]
    """Descriptors that the candidate's process must inherit."""

    def grant(self) -> dict[str, Any]:
        """What the candidate must be told to map the block."""

    def fill(self, offset: int, content: torch.Tensor) -> None:
        """These bytes are at this offset."""

    def close(self) -> None:
        """The block is given back, once no view of it is left."""


class HostMemory:
    """A mapping of anonymous memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._fd = os.memfd_create("ksearch-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._fd, size)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _SEALS)  # a candidate that cut it short would end whoever reads it
        self._map = mmap.mmap(self._fd, size)
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        self.fds: tuple[int, ...] = (self._fd,)

    def grant(self) -> dict[str, Any]:
        """The descriptor and the size."""
        return {"fd": self._fd, "size": self.size}

    def fill(self, offset: int, content: torch.Tensor) -> None:
        """As `Shared.fill`; no OpenMP thread is woken."""
        size = content.numel() * content.element_size()
        ctypes.memmove(self.bytes.data_ptr() + offset, content.data_ptr(), size)

    def close(self) -> None:
        """The descriptor is closed; the mapping lives as long as the views of it."""
        os.close(self._fd)


class DeviceMemory:
    """Device memory of its own: no allocator puts anything else there, so nothing else is shared with it."""

    def __init__(self, size: int) -> None:
        """Raises DriverError when the device has not that much."""
        self.size = size
        self._driver = Driver()
        self._address = self._driver.allocate(size)
        self.bytes = device_bytes(self._address, size)
        self.fds: tuple[int, ...] = ()

    def grant(self) -> dict[str, Any]:
        """The CUDA IPC handle and the size."""
        return {"ipc": self._driver.export(self._address).hex(), "size": self.size}

    def fill(self, offset: int, content: torch.Tensor) -> None:
        """As `Shared.fill`; the copy is queued on the default stream."""
        flat = content.reshape(-1).view(torch.uint8)
        self.bytes[offset : offset + flat.numel()].copy_(flat)

    def close(self) -> None:
        """The memory is given back."""
        self._driver.synchronize()
        self._driver.free(self._address)


class _Foreign:
    """Device memory that PyTorch did not allocate, in the form in which it takes it."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def device_bytes(address: int, size: int) -> torch.Tensor:
    """A uint8 tensor over device memory at this address."""
    return torch.as_tensor(_Foreign(address, size), device="cuda")


def shared_memory(kind: str, size: int) -> Shared:
    """A block on the device of a kind, "cpu" or "cuda"."""
    return DeviceMemory(size) if kind == "cuda" else HostMemory(size)
