"""What this machine's processor is, in words, and how busy others keep it. Standard library only."""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from pathlib import Path

_ISA_LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
_CROWDED = 0.25


def processor() -> str:
    """Model name and logical core count."""
    model = platform.processor() or platform.machine()
    with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
        for line in file:
            if line.startswith(("model name", "Model")):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {os.cpu_count()} cores"


def described(threads: int, isa: str) -> str:
    """The processor with threads, instruction set and the limits that are set on PyTorch's use of it."""
    limits = [f"{key}={os.environ[key]}" for key in _ISA_LIMITS if key in os.environ]
    return ", ".join([processor(), f"{threads} threads", *filter(None, [isa]), *limits])


class Crowd:
    """What else kept the cores busy since this was made, beside this process and one other."""

    def __init__(self, pid: int) -> None:
        """`pid` is the other process, whose threads and dead children do not count."""
        self._pid = pid
        self._began = (time.monotonic(), self._others_s())

    def _others_s(self) -> float:
        """Core seconds; what a hypervisor gave to others counts, ticks of 10 ms are the measure."""
        with Path("/proc/stat").open(encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq, steal = (int(word) for word in file.readline().split()[1:9])
        busy = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        with suppress(OSError):  # it has ended
            busy -= time.clock_gettime((~self._pid << 3) | 2)
        return busy - time.process_time()

    @property
    def here(self) -> bool:
        """Whether others took more than a quarter of a core: clocks may disagree then that agree on a still machine."""
        began, before_s = self._began
        return self._others_s() - before_s > _CROWDED * (time.monotonic() - began)
