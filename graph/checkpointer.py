"""LangGraph's checkpoints in the same SQLite file as the archive, for the CLI and for `langgraph dev`."""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    SerializerProtocol,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver

from state.database import connect

DEFAULT_DB = Path(".ksearch/ksearch.db")


def database_path() -> Path:
    """The database that KSEARCH_DB names, or the default below the current folder."""
    return Path(os.environ.get("KSEARCH_DB", DEFAULT_DB))


class StaleCheckpoint(RuntimeError):
    """The run moved on while this node ran; its result was not written."""


class CompressedSerializer(SerializerProtocol):
    """LangGraph's serializer with zlib around it; no class of ours is ever in a checkpoint."""

    def __init__(self) -> None:
        self._inner = JsonPlusSerializer(allowed_msgpack_modules=[])

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """The type tag, prefixed with "z:", and the compressed bytes."""
        kind, data = self._inner.dumps_typed(obj)
        return (f"z:{kind}", zlib.compress(data, 1)) if len(data) > 200 else (kind, data)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """The object of `dumps_typed`; uncompressed data is read too."""
        kind, raw = data
        return self._inner.loads_typed((kind[2:], zlib.decompress(raw)) if kind[:2] == "z:" else data)


class Saver(SqliteSaver):
    """A saver that keeps every decision, drops refine checkpoints that another has followed, and refuses to
    write behind a newer checkpoint. Its asynchronous methods run the synchronous ones in a thread."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the checkpoint tables. Raises sqlite3.DatabaseError when the file is damaged."""
        super().__init__(connect(path), serde=CompressedSerializer())
        self.setup()

    def close(self) -> None:
        """The connection is closed."""
        self.conn.close()

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:  # fmt: skip
        """The checkpoint is stored. Raises StaleCheckpoint when its parent is not the newest one."""
        thread = str(config["configurable"]["thread_id"])
        namespace = str(config["configurable"].get("checkpoint_ns", ""))
        parent = config["configurable"].get("checkpoint_id")
        if metadata.get("source") == "loop":
            self._refuse_if_stale(thread, namespace, parent)
        saved = super().put(config, checkpoint, metadata, new_versions)
        if parent is not None and _refining(checkpoint):
            self._drop_if_refining(thread, namespace, str(parent))
        return saved

    def _refuse_if_stale(self, thread: str, namespace: str, parent: str | None) -> None:
        with self.cursor(transaction=False) as cursor:
            row = cursor.execute(
                "SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ?",
                (thread, namespace),
            ).fetchone()
        if row[0] is not None and parent is not None and row[0] > parent:
            raise StaleCheckpoint(
                f"run {thread} was advanced by another process meanwhile (checkpoint {row[0]} is newer than "
                f"{parent}); this step was not written, and what was paid for is in the archive"
            )

    def _drop_if_refining(self, thread: str, namespace: str, checkpoint_id: str) -> None:
        """Deletes a checkpoint in the middle of a refine loop: its successor holds all that it held."""
        place = (thread, namespace, checkpoint_id)
        with self.cursor() as cursor:
            row = cursor.execute(
                "SELECT type, checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ? "
                "AND checkpoint_id = ?", place,
            ).fetchone()  # fmt: skip
            if row is None or not _refining(self.serde.loads_typed((row[0], row[1]))):
                return
            for table in ("checkpoints", "writes"):
                cursor.execute(
                    f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
                    place,
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
