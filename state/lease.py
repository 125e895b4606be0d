"""One process at a time on a run."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from state.database import NO_SPACE, DiskFull


class RunBusy(RuntimeError):
    """Another process is working on this run; the message names it. Nothing was changed."""


class Lease:
    """A re-entrant lock on one run, shared by the threads of this process and by no other process.

    The operating system drops it with the process, so a killed process leaves none behind.
    """

    def __init__(self, database: Path, run: str) -> None:
        self._run = run
        self._database = database
        self._path = database.parent / f".{database.name}.locks" / run
        self._mutex = threading.RLock()
        self._depth = 0
        self._file: int | None = None

    def __enter__(self) -> Self:
        """The lease is held. Raises RunBusy at once when another process holds it."""
        self._mutex.acquire()
        try:
            if self._depth == 0:
                self._file = self._take()
            self._depth += 1
        except BaseException:
            self._mutex.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0 and self._file is not None:
            os.close(self._file)
            self._file = None
        self._mutex.release()

    def held_elsewhere(self) -> bool:
        """Whether another process (or another Lease of this one) works on the run now."""
        try:
            with self:
                return False
        except RunBusy:
            return True

    def _take(self) -> int:
        try:
            file = self._open()
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFull(self._database, error.strerror or "no space left") from None
            raise
        if not _locked(file):
            owner = os.read(file, 64).decode(errors="replace").strip()
            os.close(file)
            raise RunBusy(
                f"run {self._run} is being advanced by another process ({owner or 'unknown'}); "
                "wait for it to stop, or stop it: nothing was changed here"
            )
        with suppress(OSError):  # a full disk: the lock is held all the same, and says nothing of who holds it
            os.pwrite(file, f"pid {os.getpid()}".ljust(32).encode(), 0)
        return file

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            return os.open(self._path, flags, 0o600)
        except FileNotFoundError:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, flags, 0o600)


def _locked(file: int) -> bool:
    """Whether the lock was had; a listing that only looks holds it for less than the time that this waits."""
    for _ in range(10):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        else:
            return True
    return False


class Leases:
    """The leases of one database in this process: one per run, shared by all who ask."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._made: dict[str, Lease] = {}

    def of(self, run: str) -> Lease:
        """The run's lease, not taken by this call."""
        return self._made.setdefault(run, Lease(self._database, run))
