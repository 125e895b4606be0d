"""The connection to the one SQLite file, shared between threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from state.database import open_database, whole


class Store:
    """Statements, one at a time or several as one transaction. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the file. Raises ArchiveError when it cannot be used."""
        self.path = path
        self._lock = threading.RLock()
        self._db = open_database(path)

    def close(self) -> None:
        """The connection is closed; everything was committed as it happened."""
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """What is written inside is committed together; one inside another is part of it."""
        with self._lock, whole(self._db.conn):
            yield

    def _one(self, sql: str, values: list[Any]) -> Any:
        with self._lock:
            return self._db.conn.execute(sql, values).fetchone()

    def _all(self, sql: str, values: list[Any]) -> list[Any]:
        with self._lock:
            return self._db.conn.execute(sql, values).fetchall()

    def _execute(self, sql: str, values: list[Any], cost_s: float = 0.0) -> None:
        """The row is committed; one that cost a second or more also survives a power failure."""
        with self._lock:
            if cost_s < 1.0:
                self._db.conn.execute(sql, values)
                return
            self._db.conn.execute("PRAGMA synchronous = FULL")
            try:
                self._db.conn.execute(sql, values)
            finally:
                self._db.conn.execute("PRAGMA synchronous = NORMAL")
