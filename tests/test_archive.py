"""The archive: nothing is paid for twice, logs fork, and a file that is not ours stays as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from state.archive import Archive
from state.database import ArchiveError
from state.edits import EVENT, Attempt, Close, Event, Insert
from state.effects import CallKey, Prompt, Reply, VerdictKey
from state.program import Program
from state.verdict import CompileError, Verdict
from tasks.evaluator import EvaluatorUnavailable

KEY = VerdictKey(program="p1", task_hash="t1", evaluator="e1", hardware="h1", purpose="attempt")
CALL = CallKey(run="r1", branch="main", node="instantiate", ordinal=0, role="coder", prompt_hash="q1")
PROMPT = Prompt(template="coder.md.j2@1", variables='{"a":1}', text="write")


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    """An empty archive whose clock goes on by ten seconds at each look."""
    ticks = iter(range(0, 10_000, 10))
    made = Archive(tmp_path / "k.db", clock=lambda: float(next(ticks)))
    yield made
    made.close()


def reopened(archive: Archive) -> Archive:
    archive.close()
    return Archive(archive.path)


def never() -> Any:
    raise AssertionError("it was paid for already")


def away() -> Any:
    raise EvaluatorUnavailable("the device is away")


def failed(message: str) -> Callable[[], Verdict]:
    return lambda: CompileError(message=message)


def test_a_verdict_is_made_once_and_kept(archive: Archive) -> None:
    assert archive.verdict(KEY, failed("no")) == (CompileError(message="no"), 10.0, False)
    again = reopened(archive)
    assert again.verdict(KEY, never) == (CompileError(message="no"), 10.0, True)
    again.close()


@pytest.mark.parametrize("field", ["program", "task_hash", "evaluator", "hardware", "purpose"])
def test_a_verdict_holds_for_its_whole_key(archive: Archive, field: str) -> None:
    other = KEY.model_copy(update={field: "confirm" if field == "purpose" else "other"})
    archive.verdict(KEY, failed("one"))
    assert archive.verdict(other, failed("two"))[0] == CompileError(message="two")
    assert archive.verdict(KEY, never)[0] == CompileError(message="one")


def test_an_evaluator_that_is_away_leaves_no_row(archive: Archive) -> None:
    with pytest.raises(EvaluatorUnavailable):
        archive.verdict(KEY, away)
    assert archive.verdicts_of("p1") == []
    assert archive.verdict(KEY, failed("back"))[2] is False


def test_the_verdicts_of_a_program_are_listed_oldest_first(archive: Archive) -> None:
    archive.verdict(KEY.model_copy(update={"purpose": "confirm"}), failed("one"))
    archive.verdict(KEY, failed("two"))
    archive.verdict(KEY.model_copy(update={"task_hash": "t2"}), failed("three"))
    messages = [(purpose, verdict.message) for purpose, verdict in archive.verdicts_of("p1", "t1")]  # type: ignore[union-attr]
    assert messages == [("confirm", "one"), ("attempt", "two")]
    assert len(archive.verdicts_of("p1")) == 3


def test_a_reply_is_paid_for_once_and_kept(archive: Archive) -> None:
    reply = Reply(text="Zeile\r\n\u00fc", model="m", input_tokens=3, output_tokens=4)
    assert archive.reply(CALL, PROMPT, lambda: reply) == (reply, 10.0)
    again = reopened(archive)
    assert again.reply(CALL, PROMPT, never) == (reply, 10.0)
    again.close()


@pytest.mark.parametrize("field", ["run", "branch", "node", "ordinal", "role", "prompt_hash"])
def test_a_reply_holds_for_its_whole_key(archive: Archive, field: str) -> None:
    other = CALL.model_copy(update={field: {"ordinal": 1, "role": "world_model"}.get(field, "other")})
    archive.reply(CALL, PROMPT, lambda: Reply(text="one", model="m"))
    assert archive.reply(other, PROMPT, lambda: Reply(text="two", model="m"))[0].text == "two"


def test_the_baseline_is_raced_once_per_run(archive: Archive) -> None:
    with pytest.raises(EvaluatorUnavailable):
        archive.baseline("r1", away)
    assert archive.baseline("r1", lambda: "[1]") == "[1]"
    assert archive.baseline("r1", never) == "[1]"
    assert archive.baseline("r2", lambda: "[2]") == "[2]"


def test_a_program_is_kept_under_its_id(archive: Archive) -> None:
    program = Program(language="cpp", source="int a;\r\n// \u00fc\n")
    assert archive.keep(program) == archive.keep(program) == program.id
    assert archive.program(program.id) == program
    with pytest.raises(KeyError):
        archive.program("nothing")


def attempts(*programs: str) -> list[Event]:
    return [Attempt(node="n0", program_id=program, verdict="passed") for program in programs]


def record(archive: Archive, branch: str, start: int, events: list[Event]) -> None:
    archive.record("r1", branch, start, [event.model_dump(mode="json") for event in events])


def test_a_log_is_recorded_once(archive: Archive) -> None:
    log: list[Event] = [Insert(parent="n0", title="a", priority=0.5), *attempts("p1", "p2"), Close(node="n1", round=2)]
    record(archive, "main", 0, log[:2])
    record(archive, "main", 0, log[:3])
    record(archive, "main", 2, log[2:])
    assert archive.events("r1", "main") == log
    assert archive.events("r1", "main", end=2) == log[:2]
    assert archive.event_count("r1", "main") == 4
    assert archive.events("r2", "main") == []
    assert archive.event_count("r2", "main") == 0


def test_a_fork_shares_the_log_up_to_its_start(archive: Archive) -> None:
    record(archive, "main", 0, attempts("p0", "p1", "p2"))
    fork = archive.fork("r1", "main", 2)
    assert archive.event_count("r1", fork) == 2
    assert archive.events("r1", fork) == attempts("p0", "p1")
    record(archive, fork, 2, attempts("q2", "q3"))
    assert archive.events("r1", fork) == attempts("p0", "p1", "q2", "q3")
    assert archive.events("r1", fork, end=3) == attempts("p0", "p1", "q2")
    assert archive.events("r1", fork, end=1) == attempts("p0")
    assert archive.events("r1", "main") == attempts("p0", "p1", "p2")


def test_a_fork_of_a_fork_may_start_before_it(archive: Archive) -> None:
    record(archive, "main", 0, attempts("p0", "p1", "p2"))
    fork = archive.fork("r1", "main", 2)
    record(archive, fork, 2, attempts("q2", "q3"))
    late, early = archive.fork("r1", fork, 3), archive.fork("r1", fork, 1)
    record(archive, late, 3, attempts("r3"))
    record(archive, early, 1, attempts("s1"))
    assert archive.events("r1", late) == attempts("p0", "p1", "q2", "r3")
    assert archive.events("r1", early) == attempts("p0", "s1")
    assert len({"main", fork, late, early}) == 4


def test_a_fork_that_was_not_used_is_used_again(archive: Archive) -> None:
    record(archive, "main", 0, attempts("p0", "p1"))
    fork = archive.fork("r1", "main", 1)
    assert archive.fork("r1", "main", 1) == fork
    record(archive, fork, 0, attempts("p0"))
    assert archive.fork("r1", "main", 1) == fork, "what it shares with its parent is no use of its own"
    assert archive.fork("r1", "main", 2) != fork
    record(archive, fork, 1, attempts("q1"))
    assert archive.fork("r1", "main", 1) != fork


def test_what_a_branch_has_tried_is_its_own_and_what_it_shares(archive: Archive) -> None:
    record(archive, "main", 0, attempts("p0", "p1", "p2"))
    fork = archive.fork("r1", "main", 2)
    record(archive, fork, 2, attempts("q2", "q3"))
    second = archive.fork("r1", fork, 3)
    third = archive.fork("r1", fork, 1)
    tried = {
        branch: [p for p in ("p0", "p1", "p2", "q2", "q3") if archive.tried("r1", branch, p)]
        for branch in ("main", fork, second, third)
    }
    assert tried == {
        "main": ["p0", "p1", "p2"],
        fork: ["p0", "p1", "q2", "q3"],
        second: ["p0", "p1", "q2"],
        third: ["p0"],
    }
    assert not archive.tried("r2", "main", "p0")


def test_runs_are_listed_newest_first_with_their_model_calls(archive: Archive) -> None:
    archive.save_run("r1", {"task": "a", "status": "running"})
    archive.save_run("r2", {"task": "b", "status": "running"})
    archive.reply(CALL, PROMPT, lambda: Reply(text="x", model="m"))
    archive.save_run("r1", {"task": "a", "status": "done"})
    rows = [(row["run"], row["status"], row["model_calls"]) for row in archive.runs()]
    assert rows == [("r2", "running", 0), ("r1", "done", 1)]


def test_opening_twice_changes_nothing(archive: Archive) -> None:
    record(archive, "main", 0, attempts("p0"))
    before = schema(archive.path)
    second = Archive(archive.path)
    assert schema(archive.path) == before
    assert second.events("r1", "main") == attempts("p0")
    second.close()


def schema(path: Path) -> list[Any]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    rows += connection.execute("SELECT * FROM _sqlite_migrations").fetchall()
    connection.close()
    return rows


@pytest.fixture
def full(archive: Archive, tmp_path: Path) -> bytes:
    """The bytes of a database of some ninety pages."""
    for index in range(30):
        archive.keep(Program(language="cpp", source=f"// {index}\n" * 400))
    archive.close()
    return archive.path.read_bytes()


@pytest.mark.parametrize("kept", [0.99, 0.6, 0.3, 0.02])
def test_a_truncated_database_is_refused_and_left_as_it_is(full: bytes, kept: float, tmp_path: Path) -> None:
    path = tmp_path / "cut" / "k.db"
    path.parent.mkdir()
    path.write_bytes(full[: int(len(full) * kept)])
    refused(path, "damaged")


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes" / "notes.txt"
    path.parent.mkdir()
    path.write_text("shopping list\n" * 500)
    refused(path, "not a K-Search database")


def refused(path: Path, problem: str) -> None:
    before = path.read_bytes()
    with pytest.raises(ArchiveError, match=problem) as error:
        Archive(path)
    assert str(path) in str(error.value)
    assert "--db" in str(error.value)
    assert path.read_bytes() == before
    assert [item.name for item in path.parent.iterdir()] == [path.name], "nothing is left beside it"


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a regular file")
    for path in (tmp_path / "file" / "k.db", tmp_path / "file" / "deeper" / "k.db", tmp_path):
        with pytest.raises(ArchiveError, match="--db") as error:
            Archive(path)
        assert str(path) in str(error.value)
    assert (tmp_path / "file").read_text() == "a regular file"


def test_every_kind_of_event_is_stored_as_it_is(archive: Archive) -> None:
    lines = [
        {"kind": "insert", "parent": "n0", "title": "\u00fc", "priority": 0.123456789, "author": "person"},
        {"kind": "update", "node": "n1", "revive": True},
        {"kind": "prune", "node": "n1", "evidence": "why"},
        {"kind": "attempt", "node": "n1", "program_id": None, "verdict": "unusable"},
        {"kind": "close", "node": "n1", "round": 7},
    ]
    events = [EVENT.validate_python(line) for line in lines]
    record(archive, "main", 0, events)
    assert archive.events("r1", "main") == events
