"""LangGraph's checkpoints in the same SQLite file as the archive, for the CLI and for `langgraph dev`."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import zstandard
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from state.database import connect, whole

DEFAULT_DB = Path(".ksearch/ksearch.db")


def database_path() -> Path:
    """The database that KSEARCH_DB names, or the default below the current folder."""
    return Path(os.environ.get("KSEARCH_DB") or DEFAULT_DB)


_Place = tuple[str, str, str | None]
"""Thread, namespace and id of a checkpoint."""
_OUTSIDE = str(UUID(int=0))
"""The task id of writes that come with a Command, from outside the graph."""
_AT = "WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
_DROP_CHECKPOINT = f"DELETE FROM checkpoints {_AT} AND json_extract(CAST(metadata AS TEXT), '$.refining')"
_DROP_WRITES = f"DELETE FROM writes {_AT}"


class StaleCheckpoint(RuntimeError):
    """The run moved on while this node ran; its result was not written."""


class CompressedSerializer(SerializerProtocol):
    """LangGraph's serializer with Zstandard around it; no class of ours is ever in a checkpoint."""

    def __init__(self) -> None:
        self._inner = JsonPlusSerializer(allowed_msgpack_modules=[])

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """The type tag, prefixed with "z:", and the compressed bytes; their checksum tells damage."""
        kind, data = self._inner.dumps_typed(obj)
        if len(data) <= 200:
            return kind, data
        return f"z:{kind}", zstandard.ZstdCompressor(level=1, write_checksum=True).compress(data)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The object of `dumps_typed`; uncompressed data is read too."""
        kind, raw = data
        return self._inner.loads_typed((kind[2:], zstandard.decompress(raw)) if kind[:2] == "z:" else data)


class Saver(SqliteSaver):
    """A saver that keeps every decision, drops refine checkpoints that another has followed, and refuses to
    write behind a newer checkpoint. Its asynchronous methods run the synchronous ones in a thread."""

    lock: Any

    def __init__(self, path: Path) -> None:
        """Opens or creates the checkpoint tables. Raises sqlite3.DatabaseError when the file is damaged."""
        super().__init__(connect(path), serde=CompressedSerializer())
        self.lock = threading.RLock()
        self.setup()

    def close(self) -> None:
        """The connection is closed."""
        self.conn.close()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """A cursor whose writes are all in the file afterwards, or none; inside another one it joins that one.

        The connection is in autocommit mode: without this a kill would leave half of what belongs together.
        """
        with self.lock, closing(self.conn.cursor()) as cursor:
            if not transaction:
                yield cursor
                return
            with whole(self.conn):
                yield cursor

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """The checkpoint is stored. Raises StaleCheckpoint when its parent is not the newest one."""
        place = _place(config)
        if metadata.get("source") != "loop":
            return super().put(config, checkpoint, metadata, new_versions)
        marked = cast("CheckpointMetadata", {**metadata, "refining": _refining(checkpoint)})
        with self.cursor() as cursor:
            self._refuse_if_stale(cursor, place)
            saved = super().put(config, checkpoint, marked, new_versions)
            if _refining(checkpoint) and cursor.execute(_DROP_CHECKPOINT, place).rowcount:
                cursor.execute(_DROP_WRITES, place)
        return saved

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Interrupts, answers and errors are stored; what a node returned is not.

        Its results come with the next checkpoint. Stored before that, a run killed in between would look
        finished (nothing left to do at its newest checkpoint); without them its node runs again, on what the
        archive holds.
        """
        kept = [write for write in writes if task_id == _OUTSIDE or write[0] in WRITES_IDX_MAP]
        if kept:
            super().put_writes(config, kept, task_id, task_path)

    def _refuse_if_stale(self, cursor: sqlite3.Cursor, place: _Place) -> None:
        thread, namespace, parent = place
        newest = _newest(cursor, thread, namespace)
        if newest is not None and parent is not None and newest > parent:
            raise StaleCheckpoint(
                f"run {thread} was advanced by another process meanwhile (checkpoint {newest} is newer than "
                f"{parent}); this step was not written, and what was paid for is in the archive"
            )

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self, config: RunnableConfig | None, *, filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None, limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:  # fmt: skip
        """As `list`."""

        def collect() -> Iterator[CheckpointTuple]:
            return iter([*self.list(config, filter=filter, before=before, limit=limit)])

        for item in await asyncio.to_thread(collect):
            yield item

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """As `put`."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """As `put_writes`."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await asyncio.to_thread(self.delete_thread, thread_id)


def _refining(checkpoint: Checkpoint) -> bool:
    """Whether the checkpoint lies between two attempts of one action, with nothing to decide."""
    values = checkpoint["channel_values"]
    action = values.get("action")
    return "branch:to:instantiate" in values and bool(action and action["attempts"]) and not values.get("parked")


def _place(config: RunnableConfig) -> _Place:
    names = config["configurable"]
    return str(names["thread_id"]), str(names.get("checkpoint_ns", "")), names.get("checkpoint_id")


def _newest(cursor: sqlite3.Cursor, thread: str, namespace: str) -> str | None:
    row = cursor.execute(
        "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?", (thread, namespace)
    ).fetchone()
    return None if row is None else row[0]


@asynccontextmanager
async def open_saver() -> AsyncIterator[Saver]:
    """The saver of `langgraph dev`, on the file that KSEARCH_DB names (langgraph.json points here)."""
    path = database_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    saver = await asyncio.to_thread(Saver, path)
    try:
        yield saver
    finally:
        saver.close()
