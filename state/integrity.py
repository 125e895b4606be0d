"""Whether the database file itself is sound, and which of its rows can be read. Nothing here writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

_MAGIC = b"SQLite format 3\0"
_HEADER = 100
_SHOWN = 5
"""Lines of SQLite's own check that are passed on."""
_PROBED = 100_000
"""Row numbers that are tried one by one in a stretch of which nothing is known."""


def log_beside(path: Path) -> bool:
    """Whether a write-ahead log with commits in it lies beside the file; a process may be at work then."""
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that sees the file as of one moment, reads around damage and cannot write."""
    mode = "mode=ro" if log_beside(path) else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=30, isolation_level=None)
    connection.row_factory = sqlite3.Row
    with closing(connection):
        connection.execute("PRAGMA writable_schema = ON")  # SQLite reads no row of a truncated file without it
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        yield connection


def header_problem(path: Path) -> str | None:
    """Why no row of this file can be read, as far as its first bytes and its size tell."""
    with path.open("rb") as file:
        head = file.read(_HEADER)
    if not head:
        return "it is empty"
    if len(head) < _HEADER or not head.startswith(_MAGIC):
        return "it is not an SQLite database, or its first page is destroyed"
    return None if _page_size(head) else "its header is destroyed: it names no possible page size"


def _page_size(head: bytes) -> int:
    """Bytes in a page; 0 when the header names no possible size."""
    size = int.from_bytes(head[16:18])
    size = 65536 if size == 1 else size
    return size if size >= 512 and size & (size - 1) == 0 else 0


def file_problems(path: Path, connection: sqlite3.Connection) -> list[str]:
    """What is wrong with the file's size and pages, the worst first; a sound file has none."""
    problems = [*_cut_off(path)]
    try:
        found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
    except sqlite3.DatabaseError as error:
        found = [f"its pages cannot be checked ({error})"]
    lines = [line for text in found if text != "ok" for line in text.splitlines() if not line.startswith("***")]
    problems += lines[:_SHOWN]
    return problems + ([f"and {len(lines) - _SHOWN} more of this kind"] if len(lines) > _SHOWN else [])


def _cut_off(path: Path) -> Iterator[str]:
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEADER)
    page = _page_size(head)
    if size % page:
        yield f"its last page is cut off ({size} bytes in pages of {page})"
    counted = head[24:28] == head[92:96]
    pages = int.from_bytes(head[28:32])
    if counted and size // page < pages and not log_beside(path):
        yield f"it is truncated: {size // page} of {pages} pages are there"


def table_names(connection: sqlite3.Connection) -> set[str]:
    """The tables that the file says it has; empty when it cannot say so."""
    try:
        names = connection.execute("SELECT CAST(name AS BLOB) FROM sqlite_master WHERE type = 'table'").fetchall()
    except sqlite3.DatabaseError:
        return set()
    return {bytes(row[0]).decode(errors="replace") for row in names}


def columns(connection: sqlite3.Connection, table: str) -> list[str]:
    """A table's columns without the generated ones; empty when the file does not say them legibly."""
    try:
        return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    except sqlite3.DatabaseError:
        return []


_OTHERS = "others, nobody knows how many"


@dataclass(frozen=True)
class Row:
    """A row by its number, and its values, the number among them, unless they cannot be read."""

    number: int
    key: str
    values: sqlite3.Row | None


def rows(connection: sqlite3.Connection, table: str, key: tuple[str, ...]) -> Iterator[Row]:
    """Every row that the table or its primary key knows of, in the order in which they were written.

    A last row with the number 0 says that there were more, and that nothing is known of them.
    """
    names = columns(connection, table)
    if not set(key) <= set(names):
        yield Row(0, _OTHERS, None)
        return
    numbers, whole = _numbers(connection, f"SELECT rowid FROM {table} NOT INDEXED ORDER BY rowid")
    keys: dict[int, str] = {}
    complete = False
    if not whole:
        keys, complete = _keys(connection, table, key)
        numbers |= keys.keys() | _beyond(connection, table, max(numbers, default=0), complete)
    for number in sorted(numbers):
        try:
            values = _values(connection, table, names, number)
        except sqlite3.DatabaseError:
            if not keys:
                keys, _ = _keys(connection, table, key)
            yield Row(number, keys.get(number, f"row {number}"), None)
        else:
            if values is not None:
                yield Row(number, key_text(values, key), values)
            elif number in keys:
                yield Row(number, keys[number], None)
    if not (whole or complete):
        yield Row(0, _OTHERS, None)


def _beyond(connection: sqlite3.Connection, table: str, last: int, complete: bool) -> set[int]:
    """The rows behind the place where reading forward stopped; where no index tells, every number in between."""
    behind, _ = _numbers(connection, f"SELECT rowid FROM {table} NOT INDEXED ORDER BY rowid DESC")
    first = min((number for number in behind if number > last), default=last)
    return behind if complete else behind | set(range(last + 1, min(first, last + _PROBED)))


def key_text(values: sqlite3.Row, key: tuple[str, ...]) -> str:
    """A row's primary key in one word."""
    return "/".join(str(values[name]) for name in key if values[name] != "")


def _values(connection: sqlite3.Connection, table: str, names: list[str], number: int) -> sqlite3.Row | None:
    """The row, or None when there is none. Raises sqlite3.DatabaseError when it cannot be read."""
    found = connection.execute(
        f"SELECT rowid AS number, {', '.join(names)} FROM {table} NOT INDEXED WHERE rowid = ?", [number]
    )
    values: sqlite3.Row | None = found.fetchone()
    return values


def _numbers(connection: sqlite3.Connection, sql: str) -> tuple[set[int], bool]:
    """The first column up to the end, or up to where the table cannot be read or goes in circles."""
    found: set[int] = set()
    try:
        for row in connection.execute(sql):
            if row[0] in found:
                return found, False
            found.add(row[0])
    except sqlite3.DatabaseError:
        return found, False
    return found, True


def _keys(connection: sqlite3.Connection, table: str, key: tuple[str, ...]) -> tuple[dict[int, str], bool]:
    """The rows that the primary key's index knows of, and whether all of it could be read."""
    found: dict[int, str] = {}
    try:
        for row in connection.execute(
            f"SELECT rowid AS number, {', '.join(key)} FROM {table} INDEXED BY sqlite_autoindex_{table}_1"
        ):
            if row["number"] in found:
                return found, False
            found[row["number"]] = key_text(row, key)
    except sqlite3.DatabaseError:
        return found, False
    return found, True
