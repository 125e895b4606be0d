"""What this machine's processor is, in words. Standard library only."""

from __future__ import annotations

import os
import platform
from pathlib import Path

_ISA_LIMITS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")


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
