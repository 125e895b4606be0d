"""Under which licence a checkout is that a task is made from."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

_UP = 4
_NAMES = ("LICENSE", "LICENCE")


def say_licence(place: Path) -> None:
    """The first line of the licence of the checkout that a file or folder lies in is on standard error, once."""
    for folder in (place, *place.parents[:_UP]):
        for name in _NAMES:
            if (folder / name).is_file():
                _said(folder / name)
                return


@functools.cache
def _said(file: Path) -> None:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    first = next((line.strip() for line in lines if line.strip()), "(empty)")
    print(f"{file.parent.name}: {first} ({file})", file=sys.stderr)
