"""A disk that fills up in the middle of a run: a message, nothing lost, and the run goes on when there is room."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakes import SCAFFOLD, FakeServices, resume, start, thread
from small_runs import small_task

from graph.build import RECURSION_LIMIT, build_graph
from graph.checkpointer import Saver
from state.database import DiskFull, connect, needs_room, whole

RUNNER = Path(__file__).with_name("full_disk_run.py")
FORM = {"task": str(SCAFFOLD), "model": "playbook", "budget": 12}
SAME = ("evaluations", "attempts", "turns", "best", "tree", "stop_reason", "branch", "event_count")


def namespace() -> list[str]:
    """The command that gives another one mounts of its own; skips where this machine grants none."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare: no disk of one's own can be mounted")
    command = ["unshare", "-Urm"]
    tried = subprocess.run([*command, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True,
                           timeout=60)  # fmt: skip
    if tried.returncode:
        pytest.skip(f"no disk of one's own can be mounted: {tried.stderr.strip()}")
    return command


@pytest.mark.timeout(600)
def test_a_run_on_a_full_disk_stops_with_a_message_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    task = small_task(tmp_path)
    done = subprocess.run([*namespace(), sys.executable, str(RUNNER), str(task), str(disk)], capture_output=True,
                          text=True, timeout=500)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for name in ("run", "still full"):
        ended = found[name]
        assert ended["code"] == 75, ended
        for words in (f"{disk}/k.db: cannot be written", "nothing is lost", "ksearch resume ", f" --db {disk}/k.db"):
            assert words in ended["err"]
        assert "Traceback" not in ended["err"]
    kept, final = json.loads(found["verify"]["out"]), json.loads(found["verify again"]["out"])
    assert (found["verify"]["code"], kept["runs"][0]["meaning"]) == (0, "can be resumed")
    assert found["resume"]["code"] == 0, found["resume"]
    assert (found["verify again"]["code"], final["runs"][0]["meaning"]) == (0, "done, can be read")
    rows = {one["table"]: one["sound"] for one in kept["tables"]}
    later = {one["table"]: one["sound"] for one in final["tables"]}
    assert all(rows[name] <= later[name] for name in ("programs", "verdicts", "model_calls", "events"))
    assert rows["model_calls"] > 0


def compiled(services: FakeServices, saver: Saver) -> Any:
    return build_graph(services).compile(saver).with_config(recursion_limit=RECURSION_LIMIT)


def test_a_search_that_met_a_full_database_ends_like_one_that_did_not(tmp_path: Path) -> None:
    undisturbed = FakeServices(tmp_path / "a.db")
    expected = start(compiled(undisturbed, Saver(undisturbed.database)), **FORM)

    services = FakeServices(tmp_path / "b.db")
    saver = Saver(services.database)
    graph, room, refused = compiled(services, saver), 0, 0
    result: dict[str, Any] | None = None
    while result is None:
        (pages,) = saver.conn.execute("PRAGMA page_count").fetchone()
        room = max(room, pages) + 2
        saver.conn.execute(f"PRAGMA max_page_count = {room}")
        try:
            with needs_room(services.database):
                result = resume(graph) if graph.get_state(thread()).next else start(graph, **FORM)
        except DiskFull as full:
            assert str(services.database) in str(full)
            assert not saver.conn.in_transaction
            refused += 1
    assert refused > 3
    assert {key: result[key] for key in SAME} == {key: expected[key] for key in SAME}
    assert len(services.evaluator.evaluated) == len(set(services.evaluator.evaluated))


def test_what_a_full_database_did_not_take_is_not_there_in_part(tmp_path: Path) -> None:
    connection = connect(tmp_path / "k.db")
    connection.execute("CREATE TABLE t (x BLOB)")
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    with pytest.raises(DiskFull, match=r"k\.db: cannot be written"), needs_room(tmp_path / "k.db"), whole(connection):
        for _ in range(20):
            connection.execute("INSERT INTO t VALUES (zeroblob(2000))")
    assert not connection.in_transaction
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)
    connection.execute("INSERT INTO t VALUES (1)")


def test_other_errors_of_the_database_are_not_called_a_full_disk(tmp_path: Path) -> None:
    connection = connect(tmp_path / "k.db")
    with pytest.raises(sqlite3.OperationalError, match="no such table"), needs_room(tmp_path / "k.db"):
        connection.execute("SELECT * FROM absent")
