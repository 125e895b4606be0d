"""The CUDA driver by ctypes: memory shared between processes, a device-wide wait, events. Standard library only.

Everything here works on the context that is current, which is PyTorch's own once it has touched the device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

FLUSH_BYTES = 256 << 20
"""Written by either side before each timed call on a GPU: several times the largest second-level cache."""
_HANDLE_BYTES = 64
_LAZY_PEER = 1


class DeviceSick(Exception):
    """The device, or the machine around it, does not work; no program is to blame."""


class DriverError(Exception):
    """A call of the driver failed; carries the driver's own name for it."""

    def __init__(self, call: str, name: str, description: str) -> None:
        super().__init__(f"{call}: {name} ({description})")
        self.name = name


Bound = tuple[Callable[[], None], Callable[[int], None], Callable[[int], None], Callable[[int, int], float]]


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * _HANDLE_BYTES),)


class Driver:
    """The calls that are needed, each of which raises DriverError when the driver refuses."""

    def __init__(self) -> None:
        """Raises OSError on a machine without the driver."""
        self._library = ctypes.CDLL("libcuda.so.1")

    def allocate(self, size: int) -> int:
        """Address of fresh device memory that no allocator shares."""
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def free(self, address: int) -> None:
        """Memory of `allocate` is given back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def export(self, address: int) -> bytes:
        """The handle by which another process maps memory of `allocate`."""
        handle = _Handle()
        self._call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(address))
        return bytes(memoryview(handle))

    def open(self, handle: bytes) -> int:
        """Address of another process's memory in this one."""
        pointer = ctypes.c_uint64()
        shared = _Handle.from_buffer_copy(handle)
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), shared, ctypes.c_uint(_LAZY_PEER))
        return pointer.value

    def synchronize(self) -> None:
        """All work of this process on the device is done, on whatever stream."""
        self._call("cuCtxSynchronize")

    def free_bytes(self) -> int:
        """Device memory that nobody uses."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def attribute(self, number: int) -> int:
        """An attribute of device 0 by its number in the driver's header."""
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(number), ctypes.c_int(0))
        return value.value

    def version(self) -> int:
        """The newest CUDA version that the driver serves: 13000 is 13.0."""
        value = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(value))
        return value.value

    def event(self) -> int:
        """A new event that keeps time."""
        event = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        return int(event.value or 0)

    def record(self, event: int) -> None:
        """The event is queued on the default stream, behind all that blocking streams hold."""
        self._call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(None))

    def wait(self, event: int) -> None:
        """The event has happened."""
        self._call("cuEventSynchronize", ctypes.c_void_p(event))

    def elapsed_us(self, start: int, end: int) -> float:
        """Microseconds between two events that have happened."""
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), ctypes.c_void_p(start), ctypes.c_void_p(end))
        return 1000.0 * milliseconds.value

    def bound(
        self,
    ) -> tuple[Callable[[], None], Callable[[int], None], Callable[[int], None], Callable[[int, int], float]]:
        """`synchronize`, `record`, `wait` and `elapsed_us` as functions that no change to this class reaches."""
        library = self._library
        synchronize, record = library.cuCtxSynchronize, library.cuEventRecord
        wait, elapsed = library.cuEventSynchronize, library.cuEventElapsedTime
        pointer, milliseconds, reference, text = ctypes.c_void_p, ctypes.c_float, ctypes.byref, self._text

        def check(code: int, name: str) -> None:
            if code:
                raise DriverError(name, text("cuGetErrorName", code), text("cuGetErrorString", code))

        def elapsed_us(start: int, end: int) -> float:
            value = milliseconds()
            check(elapsed(reference(value), pointer(start), pointer(end)), "cuEventElapsedTime")
            return 1000.0 * value.value

        return (
            lambda: check(synchronize(), "cuCtxSynchronize"),
            lambda event: check(record(pointer(event), None), "cuEventRecord"),
            lambda event: check(wait(pointer(event)), "cuEventSynchronize"),
            elapsed_us,
        )

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, name)(*arguments)
        if code:
            raise DriverError(name, self._text("cuGetErrorName", code), self._text("cuGetErrorString", code))

    def _text(self, function: str, code: int) -> str:
        text = ctypes.c_char_p()
        getattr(self._library, function)(ctypes.c_int(code), ctypes.byref(text))
        return (text.value or b"unknown error").decode()
