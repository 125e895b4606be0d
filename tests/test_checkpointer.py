"""The saver: whole transactions, decisions kept, refine checkpoints dropped, stale writers refused."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from fakes import SCAFFOLD, FakeServices
from langgraph.checkpoint.base import empty_checkpoint

from graph.build import build_graph
from graph.checkpointer import CompressedSerializer, Saver, StaleCheckpoint, open_saver

RUN = "3f0e0d0c-0000-4000-8000-000000000004"
CONFIG: Any = {"configurable": {"thread_id": RUN}, "recursion_limit": 1000}
FORM = {"task": str(SCAFFOLD), "model": "playbook", "budget": 12}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


def compiled(database: Path) -> Any:
    return build_graph(FakeServices(database)).compile(checkpointer=Saver(database))


def rows(database: Path, sql: str) -> list[Any]:
    return sqlite3.connect(database).execute(sql).fetchall()


def put(saver: Saver, number: int, parent: str | None, source: str = "loop", **values: object) -> str:
    config = {"configurable": {"thread_id": RUN, "checkpoint_ns": "", "checkpoint_id": parent}}
    checkpoint = {**empty_checkpoint(), "id": f"{number:04}", "channel_values": values}
    saver.put(config, checkpoint, {"source": source, "step": number, "parents": {}}, {})  # type: ignore[arg-type, typeddict-item]
    return f"{number:04}"


def refining(attempts: int) -> dict[str, object]:
    return {"branch:to:instantiate": None, "action": {"attempts": attempts}}


def kept(saver: Saver) -> list[str]:
    return sorted(item.checkpoint["id"] for item in saver.list(CONFIG))


def test_a_whole_run_keeps_each_decision_and_no_step_between_two_attempts(database: Path) -> None:
    graph = compiled(database)
    final = graph.invoke(FORM, CONFIG, durability="sync")
    steps = [item.metadata["step"] for item in graph.get_state_history(CONFIG)]
    visited = {name for item in graph.get_state_history(CONFIG) for name in item.next}
    assert visited == {"__start__", "initialize", "approve", "select", "instantiate", "co_evolve", "finish"}
    assert len(steps) < max(steps) + 2 - final["attempts"] / 2


def test_a_refine_checkpoint_goes_when_the_next_attempt_follows(database: Path) -> None:
    saver = Saver(database)
    chosen = put(saver, 1, None, **refining(0))
    first = put(saver, 2, chosen, **refining(1))
    second = put(saver, 3, first, **refining(2))
    assert kept(saver) == [chosen, second]
    put(saver, 4, second)
    assert kept(saver) == [chosen, second, "0004"]


def test_a_parked_attempt_and_a_persons_update_stay(database: Path) -> None:
    saver = Saver(database)
    first = put(saver, 1, None, **refining(1), parked={"reason": "away"})
    edited = put(saver, 2, first, source="update", **refining(1))
    put(saver, 3, edited, **refining(2))
    assert kept(saver) == [first, edited, "0003"]


def test_a_dropped_checkpoint_takes_its_writes_along(database: Path) -> None:
    saver = Saver(database)
    first = put(saver, 1, None, **refining(1))
    config = {"configurable": {"thread_id": RUN, "checkpoint_ns": "", "checkpoint_id": first}}
    saver.put_writes(config, [("__error__", "boom")], "task")  # type: ignore[arg-type]
    put(saver, 2, first, **refining(2))
    assert rows(database, "SELECT count(*) FROM writes") == [(0,)]


def test_a_stale_writer_is_refused_and_writes_nothing(database: Path) -> None:
    early, late = Saver(database), Saver(database)
    start = put(early, 1, None)
    put(late, 2, start)
    with pytest.raises(StaleCheckpoint, match=f"run {RUN} was advanced .* 0002 is newer than 0001"):
        put(early, 3, start, **refining(1))
    assert kept(early) == kept(late) == ["0001", "0002"]


def test_a_process_that_was_overtaken_between_two_of_its_steps_stops(database: Path) -> None:
    slow = compiled(database).stream(FORM, CONFIG, durability="sync", stream_mode="updates")
    next(slow)
    other = compiled(database)
    other.invoke(None, CONFIG, durability="sync")
    finished = other.get_state(CONFIG)
    with pytest.raises(StaleCheckpoint):
        list(slow)
    assert other.get_state(CONFIG) == finished
    assert finished.values["status"] == "done"


def test_what_a_node_returned_is_not_stored_beside_the_checkpoint(database: Path) -> None:
    saver = Saver(database)
    config: Any = {"configurable": {"thread_id": RUN, "checkpoint_ns": "", "checkpoint_id": put(saver, 1, None)}}
    saver.put_writes(config, [("tree", {}), ("branch:to:select", None)], "task")
    assert rows(database, "SELECT count(*) FROM writes") == [(0,)]
    saver.put_writes(config, [("__interrupt__", "?"), ("__resume__", "yes")], "task")
    saver.put_writes(config, [("tree", {})], "00000000-0000-0000-0000-000000000000")
    stored = rows(database, "SELECT channel FROM writes ORDER BY 1")
    assert stored == [("__interrupt__",), ("__resume__",), ("tree",)]


def test_a_failed_transaction_leaves_nothing(database: Path) -> None:
    saver = Saver(database)
    put(saver, 1, None)
    with pytest.raises(ZeroDivisionError), saver.cursor() as cursor:
        cursor.execute("DELETE FROM checkpoints")
        raise ZeroDivisionError
    assert kept(saver) == ["0001"]


def test_the_asynchronous_methods_do_the_same(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSEARCH_DB", str(database))

    async def run() -> tuple[dict[str, Any], int]:
        async with open_saver() as saver:
            graph: Any = build_graph(FakeServices(database)).compile(checkpointer=saver)
            final = await graph.ainvoke(FORM, CONFIG, durability="sync")
            return final, len([item async for item in graph.aget_state_history(CONFIG)])

    final, count = asyncio.run(run())
    assert final["status"] == "done"
    graph = compiled(database)
    assert graph.get_state(CONFIG).values == final
    assert len(list(graph.get_state_history(CONFIG))) == count


def test_the_serializer_compresses_what_is_long_and_reads_what_is_not() -> None:
    serde = CompressedSerializer()
    for value in ({"a": 1}, {"text": "tile " * 1000}):
        assert serde.loads_typed(serde.dumps_typed(value)) == value
    kind, data = serde.dumps_typed({"text": "tile " * 1000})
    assert kind.startswith("z:") and len(data) < 200
