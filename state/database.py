"""The one SQLite file: how it is opened, and how long texts lie in it."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard
from sqlite_utils import Database

from state.schema import MIGRATIONS


class ArchiveError(RuntimeError):
    """The database cannot be opened or is not ours; the message names the file and what to do."""


class DiskFull(ArchiveError):
    """The database can take nothing more; whatever was committed is in it."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path}: cannot be written ({reason}); everything that was stored is kept. Make room on its disk "
            "and give the same command again"
        )
        self.reason = reason


NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""The system's words for a full disk."""
_NOT_WRITTEN = (
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMMAP,
)  # fmt: skip
"""SQLite's words for a full disk: it puts the last three where it cannot make its index of the write-ahead log."""


@contextmanager
def needs_room(path: Path) -> Iterator[None]:
    """What fails inside because the database's disk takes nothing more raises DiskFull."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode not in _NOT_WRITTEN:
            raise
        raise DiskFull(path, str(error)) from error


@contextmanager
def whole(connection: sqlite3.Connection) -> Iterator[None]:
    """What is written inside is committed together, or nothing of it is there; part of a transaction under way."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk may have ended it already
            connection.execute("ROLLBACK")
        raise


def connect(path: Path) -> sqlite3.Connection:
    """A connection in autocommit mode with a write-ahead log.

    A killed process loses no commit. A power failure may lose the latest, in order and never in part, unless a
    connection with `synchronous = FULL` committed after them.
    """
    connection = sqlite3.connect(path, timeout=30, check_same_thread=False, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def open_database(path: Path) -> Database:
    """The database with its tables up to date. Raises ArchiveError; then the file is as it was."""
    connection: sqlite3.Connection | None = None
    try:
        with needs_room(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            connection = connect(path)
            _refuse_damaged(path, connection)
            database = Database(connection)
            connection.execute("BEGIN IMMEDIATE")  # waits for another writer; a later lock would fail at once
            MIGRATIONS.apply(database)
            connection.execute("COMMIT")
            connection = None
    except OSError as error:
        if error.errno in NO_SPACE:
            raise DiskFull(path, error.strerror or "no space left") from None
        raise ArchiveError(f"{path}: cannot be created ({error.strerror}); choose another with --db") from None
    except sqlite3.OperationalError as error:
        raise ArchiveError(f"{path}: cannot be opened ({error}); choose another with --db") from None
    except sqlite3.DatabaseError as error:
        raise ArchiveError(
            f"{path}: not a K-Search database, or damaged ({error}). The file was left as it is; "
            f"choose another with --db, or see what can be saved: ksearch verify --db {path}"
        ) from None
    finally:
        if connection is not None:
            connection.close()
    return database


def _refuse_damaged(path: Path, connection: sqlite3.Connection) -> None:
    """Raises sqlite3.DatabaseError when a page is damaged or cut off."""
    problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)
    if path.stat().st_size % connection.execute("PRAGMA page_size").fetchone()[0]:
        raise sqlite3.DatabaseError("its last page is cut off")


def packed(text: str) -> bytes:
    """The text, compressed with Zstandard; its checksum tells damaged bytes."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(text.encode())


def unpacked(data: bytes) -> str:
    """The text of `packed`."""
    return zstandard.decompress(data).decode()
