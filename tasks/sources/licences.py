"""Under which licence a checkout is that a task is made from."""

from __future__ import annotations

import functools
import sys
from pathlib import Path


def say_licence(root: Path) -> None:
    """The first line of the checkout's LICENSE file is on standard error, once in a process."""
    file = root / "LICENSE"
    if file.is_file():
        _said(file)


@functools.cache
def _said(file: Path) -> None:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    first = next((line.strip() for line in lines if line.strip()), "(empty)")
    print(f"{file.parent.name}: {first} ({file})", file=sys.stderr)
