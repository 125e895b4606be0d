"""One lock for the machine (and user): timings exclude each other and every compiler. Standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_POLL_S = 0.005


class LockTimeout(Exception):
    """Another process held the lock for too long; the message names the lock's file."""


@contextlib.contextmanager
def timing(limit_s: float = 900.0) -> Iterator[None]:
    """Inside, nobody else times or compiles."""
    with _held("gate", fcntl.LOCK_EX, limit_s), _held("timing", fcntl.LOCK_EX, limit_s):
        yield


@contextlib.contextmanager
def compiling(limit_s: float = 900.0) -> Iterator[None]:
    """Inside, nobody times; other compilers may run."""
    with contextlib.ExitStack() as stack:
        with _held("gate", fcntl.LOCK_EX, limit_s):
            stack.enter_context(_held("timing", fcntl.LOCK_SH, limit_s))
        yield


def lock_folder() -> Path:
    """Where the lock's files are: the user's runtime folder, or the one for temporary files."""
    return Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())


@contextlib.contextmanager
def _held(name: str, kind: int, limit_s: float) -> Iterator[None]:
    path = lock_folder() / f"ksearch-{os.getuid()}.{name}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _acquire(descriptor, kind, path, limit_s)
        yield
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, kind: int, path: Path, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LockTimeout(f"{path} was held by another process for {limit_s:.0f} s") from None
            time.sleep(_POLL_S)
