"""Where programs run, as the trusted process sees it: clocks, generators, limits. Standard library and torch only."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from tasks.driver import FLUSH_BYTES, DeviceSick, Driver, DriverError
from tasks.isolation import wait_until_quiet

_QUIET_S = 0.1
"""Seconds to wait at most until this process's OpenMP threads have stopped spinning."""
_LEAST_SLEEP_US = 50.0
_MOST_SLEEP_US = 4000.0
_MEMORY_CLOCK, _BUS_WIDTH = 36, 37
_OPERATIONS_PER_CLOCK = {8: 4096, 9: 8192, 10: 16384, 12: 8192}
"""Dense 8-bit operations per multiprocessor and clock, by major compute capability: no kernel does more."""
_BOOST_GHZ = 2.1
"""No shipping GPU runs its tensor cores at a higher clock."""


class Device(Protocol):
    """A place to run baselines and to keep tensors."""

    kind: str

    def generator(self, seed: int) -> torch.Generator:
        """A generator on the device."""

    def settle(self) -> None:
        """Nothing of this process is running that could disturb a candidate."""

    def timed(self, work: Callable[[], Any], name: str) -> tuple[float, Any]:
        """Latency of one call in microseconds, and its result; `name` is that of other calls like it."""

    def sleep_us(self, host_us: float) -> float:
        """How long the device must be kept busy so that a call that takes `host_us` to launch is launched in time."""

    def floor_us(self, read: int, written: int, operations: float) -> float:
        """Microseconds below which nobody reads, writes (bytes) and computes (operations) this much on this device."""

    def check_health(self) -> None:
        """Raises DeviceSick when the device does not compute."""

    def facts(self) -> dict[str, str]:
        """Versions and names for a receipt."""


class Cpu:
    """This machine's processor."""

    kind = "cpu"

    def generator(self, seed: int) -> torch.Generator:
        """A generator of random numbers in main memory."""
        return torch.Generator().manual_seed(seed)

    def settle(self) -> None:
        """OpenMP's threads of this process are asleep."""
        wait_until_quiet(_QUIET_S)

    def timed(self, work: Callable[[], Any], name: str) -> tuple[float, Any]:
        """Wall-clock time."""
        began = time.perf_counter_ns()
        result = work()
        return (time.perf_counter_ns() - began) / 1000, result

    def sleep_us(self, host_us: float) -> float:
        """Nothing is hidden on a CPU."""
        return 0.0

    def floor_us(self, read: int, written: int, operations: float) -> float:
        """No floor: what a processor can do at most is not known to the harness."""
        return 0.0

    def check_health(self) -> None:
        """A processor that runs this is well."""

    def facts(self) -> dict[str, str]:
        """Versions of torch and Python."""
        return {"torch": torch.__version__, "python": platform.python_version()}


class Cuda:
    """The current CUDA device. Raises DeviceSick when there is none or it does not work."""

    kind = "cuda"

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise DeviceSick("no CUDA device is visible to PyTorch")
        try:
            self._begin()
        except (RuntimeError, DriverError, OSError) as error:
            raise DeviceSick(f"the CUDA device cannot be used: {first_line(error)}") from None

    def _begin(self) -> None:
        torch.zeros(1, device="cuda")
        self.driver = Driver()
        self._events = self.driver.event(), self.driver.event()
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        properties = torch.cuda.get_device_properties(0)
        self.capability = f"{properties.major}.{properties.minor}"
        self._cache = properties.L2_cache_size
        self._bytes_per_us = self._bandwidth()
        per_clock = _OPERATIONS_PER_CLOCK.get(properties.major, 0)
        self._operations_per_us = per_clock * properties.multi_processor_count * _BOOST_GHZ * 1000
        self._cycles_per_us = 1000.0
        self._cycles_per_us = self._measured_cycles()
        self._sleeps: dict[str, float] = {}

    def _bandwidth(self) -> float:
        """Bytes per microsecond from the memory's clock and width; 0 when the driver does not say."""
        return 2.0 * self.driver.attribute(_MEMORY_CLOCK) * self.driver.attribute(_BUS_WIDTH) / 8 / 1000

    def _measured_cycles(self) -> float:
        cycles = 1_000_000
        fastest = min(self._sleep_once(cycles) for _ in range(3))
        return cycles / fastest

    def _sleep_once(self, cycles: int) -> float:
        start, end = self._events
        self.driver.synchronize()
        self.driver.record(start)
        torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
        self.driver.record(end)
        self.driver.wait(end)
        return self.driver.elapsed_us(start, end)

    def generator(self, seed: int) -> torch.Generator:
        """A generator in device memory."""
        return torch.Generator("cuda").manual_seed(seed)

    def settle(self) -> None:
        """All work of this process on the device is done."""
        self.driver.synchronize()

    def timed(self, work: Callable[[], Any], name: str) -> tuple[float, Any]:
        """Time between two events: the caches are cold, and the launches are hidden behind a sleeping kernel."""
        start, end = self._events
        self.driver.synchronize()
        self._flush.zero_()
        torch.cuda._sleep(int(self._sleeps.get(name, _MOST_SLEEP_US / 4) * self._cycles_per_us))  # type: ignore[no-untyped-call]
        self.driver.record(start)
        began = time.perf_counter_ns()
        result = work()
        launched = (time.perf_counter_ns() - began) / 1000
        self.driver.record(end)
        self.driver.synchronize()
        self._sleeps[name] = self.sleep_us(launched)
        return self.driver.elapsed_us(start, end), result

    def sleep_us(self, host_us: float) -> float:
        """Half as long again as the launches took, within limits."""
        return min(_MOST_SLEEP_US, max(_LEAST_SLEEP_US, 1.5 * host_us))

    @property
    def cycles_per_us(self) -> float:
        """Cycles of torch.cuda._sleep in a microsecond, as measured."""
        return self._cycles_per_us

    def floor_us(self, read: int, written: int, operations: float) -> float:
        """The larger of moving the bytes and doing the operations; writes may stay in the second-level cache."""
        moved = read + max(0, written - self._cache)
        by_memory = moved / self._bytes_per_us if self._bytes_per_us else 0.0
        by_arithmetic = operations / self._operations_per_us if self._operations_per_us else 0.0
        return max(by_memory, by_arithmetic)

    def foreign_free_bytes(self) -> int:
        """Free device memory, as it would be without what this process's allocator holds."""
        return self.driver.free_bytes() + torch.cuda.memory_reserved()

    def check_health(self) -> None:
        """A kernel on the device computes what it should. Raises DeviceSick."""
        try:
            total = int(torch.arange(4096, device="cuda", dtype=torch.int64).sum())
            self.driver.synchronize()
        except (RuntimeError, DriverError) as error:
            raise DeviceSick(f"the device does not work any more: {first_line(error)}") from None
        if total != 4096 * 4095 // 2:
            raise DeviceSick(f"the device computes wrongly: a sum came out as {total}")

    def facts(self) -> dict[str, str]:
        """Name, capability and driver of the device, and the versions of torch, CUDA and Python."""
        version = self.driver.version()
        return {
            "device": torch.cuda.get_device_name(0),
            "compute capability": self.capability,
            "driver": f"CUDA {version // 1000}.{version % 1000 // 10}",
            "cuda": str(torch.version.cuda),
            "torch": torch.__version__,
            "python": platform.python_version(),
        }


def first_line(error: BaseException) -> str:
    """The type and the first line of an exception."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def open_device(kind: str) -> Device:
    """The device of a kind, "cpu" or "cuda". Raises DeviceSick."""
    return Cuda() if kind == "cuda" else Cpu()
