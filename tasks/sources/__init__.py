"""Where tasks come from beside folders: a prefix before the first colon of a task's name names the source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tasks.sources import flashinfer, gpumode, kernelbench

SOURCES: dict[str, Callable[[str], Path]] = {
    "flashinfer": flashinfer.materialise,
    "gpumode": gpumode.materialise,
    "kernelbench": kernelbench.materialise,
}
"""Turns what follows the colon into a task folder; raises TaskError."""
