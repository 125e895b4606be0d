"""`ksearch verify`: what is damaged is named, what is sound is kept, and the file that was checked stays as it was."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from fakes import SCAFFOLD, FakeServices, compiled, resume, start, thread
from vouched import VouchedEvaluator

from graph.cli import main
from graph.examining import Examination, examine
from state.archive import Archive
from state.database import connect, packed
from state.edits import apply
from state.program import Program
from state.tree import SearchTree, new_tree

FORM = {"task": str(SCAFFOLD), "model": "playbook", "budget": 12}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a database with two runs: one is done, one was stopped half-way."""
    services = FakeServices(tmp_path_factory.mktemp("whole") / "k.db")
    services.evaluator = VouchedEvaluator(services.task)
    graph = compiled(services)
    start(graph, run="done-run", **FORM)
    for _ in zip(range(9), graph.stream({**FORM, "advanced": {}}, thread("half-run"), durability="sync"), strict=False):
        pass
    with closing(connect(services.database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return services.database.read_bytes()


@pytest.fixture
def database(tmp_path: Path, whole: bytes) -> Path:
    path = tmp_path / "k.db"
    path.write_bytes(whole)
    return path


def verify(path: Path, *arguments: object) -> tuple[int, dict[str, Any], str]:
    """The command's exit code, its JSON (empty when it complained) and its complaint; the file is as it was."""
    before = path.read_bytes() if path.is_file() else b""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors), pytest.raises(SystemExit) as end:
        main(["verify", *map(str, arguments), "--db", str(path), "--json"])
    assert (path.read_bytes() if path.is_file() else b"") == before
    assert not path.with_name(f"{path.name}-wal").exists(), "nothing is left beside it"
    code = int(end.value.code or 0)
    return code, json.loads(out.getvalue()) if out.getvalue() else {}, errors.getvalue()


def damaged(found: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """Of each table, the ids of its damaged rows with what is wrong with them."""
    return {
        table["table"]: [(one["id"], one["problem"]) for one in table["first"]]
        for table in found["tables"] if table["damaged"]
    }  # fmt: skip


def outlooks(found: dict[str, Any]) -> dict[str, str]:
    return {run["run"]: run["outlook"] for run in found["runs"]}


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def query(path: Path, sql: str) -> Any:
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        return connection.execute(sql).fetchall()


def test_a_sound_file_is_called_sound(database: Path) -> None:
    code, found, _ = verify(database)
    assert (code, found["sound"], found["file"], damaged(found)) == (0, True, [], {})
    assert {run["run"]: run["meaning"] for run in found["runs"]} == {
        "half-run": "can be resumed", "done-run": "done, can be read",
    }  # fmt: skip
    counts = {table["table"]: table["sound"] for table in found["tables"]}
    for name, count in counts.items():
        assert count == query(database, f"SELECT count(*) FROM {name}")[0][0]
    assert found["unverified_verdicts"] == 0


def test_a_file_that_a_run_is_writing_is_read_as_of_one_moment(tmp_path: Path) -> None:
    services = FakeServices(tmp_path / "k.db")
    start(compiled(services), **FORM)
    assert services.database.with_name("k.db-wal").stat().st_size
    found = examine(services.database)
    assert found.sound(), found
    assert found.contents.unverified == len(found.contents.tables["verdicts"].sound) > 0


def test_a_programs_changed_text_is_found_and_its_run_goes_back_before_it(database: Path, tmp_path: Path) -> None:
    ((best,),) = query(database, "SELECT best_program FROM runs WHERE run = 'done-run'")
    with closing(connect(database)) as connection:
        connection.execute("UPDATE programs SET source = ? WHERE id = ?", [packed("int forged;"), best])
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    code, found, _ = verify(database)
    forged = Program(language="cpp", source="int forged;").id
    assert code == 1
    assert damaged(found) == {"programs": [(best, f"its text is that of another program ({forged})")]}
    assert outlooks(found)["done-run"] == "earlier"
    assert best in found["runs"][-1]["problems"][0]


def test_a_verdict_moved_to_another_program_is_found(database: Path) -> None:
    first, second = [row[0] for row in query(database, "SELECT program FROM verdicts WHERE purpose = 'attempt'")][:2]
    change(database, f"DELETE FROM verdicts WHERE program = '{second}'",
           f"UPDATE verdicts SET program = '{second}' WHERE program = '{first}' AND purpose = 'attempt'")  # fmt: skip
    code, found, _ = verify(database)
    ((name, problem),) = damaged(found)["verdicts"]
    assert code == 1 and name.startswith(second)
    assert problem == f"its receipt names another program ({first})"


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("UPDATE verdicts SET task_hash = 'other' WHERE rowid = 1", "another task"),
        ('UPDATE verdicts SET verdict = \'{"kind": "passed"}\' WHERE rowid = 1', "cannot be parsed"),
        ("UPDATE verdicts SET kind = 'passed', score = 900 WHERE rowid = 1", "its row says passed, J 900"),
    ],
)
def test_a_verdict_that_does_not_hold_together_is_found(database: Path, sql: str, problem: str) -> None:
    change(database, sql)
    code, found, _ = verify(database)
    ((_, said),) = damaged(found)["verdicts"]
    assert code == 1 and problem in said


def test_a_reply_and_a_checkpoint_that_cannot_be_unpacked_are_found(database: Path) -> None:
    newest = "(SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = 'half-run')"
    change(database, "UPDATE model_calls SET reply = x'00112233' WHERE rowid = 1",
           f"UPDATE checkpoints SET checkpoint = x'28b52ffd00' WHERE checkpoint_id = {newest}")  # fmt: skip
    code, found, _ = verify(database)
    assert code == 1
    assert {name: len(rows) for name, rows in damaged(found).items()} == {"model_calls": 1, "checkpoints": 1}
    assert outlooks(found) == {"half-run": "earlier", "done-run": "whole"}
    assert found["runs"][0]["problems"] == ["its newest checkpoint is damaged"]


def test_one_flipped_byte_of_a_checkpoint_or_a_reply_is_found(database: Path) -> None:
    for table, column in (("checkpoints", "checkpoint"), ("model_calls", "reply")):
        ((row, data),) = query(database, f"SELECT rowid, {column} FROM {table} ORDER BY length({column}) DESC LIMIT 1")
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]
        with closing(connect(database)) as connection:
            connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", [flipped, row])
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    _, found, _ = verify(database)
    assert {name: len(rows) for name, rows in damaged(found).items()} == {"model_calls": 1, "checkpoints": 1}


def test_a_deleted_event_is_missed_and_restored_from_the_checkpoints(database: Path, tmp_path: Path) -> None:
    before = query(database, "SELECT run, branch, seq, event FROM events ORDER BY run, seq")
    change(database, "DELETE FROM events WHERE run = 'done-run' AND seq IN (2, 3)")
    code, found, _ = verify(database, "--salvage", tmp_path / "new.db")
    gaps = [("done-run/main/2", "it is missing from the log"), ("done-run/main/3", "it is missing from the log")]
    assert code == 1 and damaged(found)["events"][:2] == gaps
    assert set(before) <= set(query(tmp_path / "new.db", "SELECT run, branch, seq, event FROM events"))
    assert verify(tmp_path / "new.db")[0] == 0


def test_events_that_do_not_give_the_checkpoints_tree_are_found(database: Path) -> None:
    change(database, "UPDATE events SET event = json_set(event, '$.priority', 0.123) "
           "WHERE run = 'done-run' AND kind = 'insert' AND seq = 0")  # fmt: skip
    code, found, _ = verify(database)
    assert code == 1
    assert damaged(found) == {"events": [("done-run/main", "its events do not give its newest checkpoint's tree")]}


def test_a_run_whose_newest_checkpoint_was_deleted_is_told_from_one_that_lost_all(database: Path) -> None:
    kept = "SELECT checkpoint_id FROM checkpoints WHERE thread_id = 'done-run' ORDER BY 1 LIMIT 1 OFFSET 6"
    change(database, "DELETE FROM checkpoints WHERE thread_id = 'half-run'",
           f"DELETE FROM checkpoints WHERE thread_id = 'done-run' AND checkpoint_id > ({kept})")  # fmt: skip
    code, found, _ = verify(database)
    assert code == 1
    assert {run["run"]: (run["meaning"], run["problems"]) for run in found["runs"]} == {
        "half-run": ("programs and verdicts can be read, cannot be resumed", ["its checkpoints are gone"]),
        "done-run": ("can be resumed from an earlier step", ["its newest checkpoint is gone"]),
    }


def test_a_person_reads_what_damage_means_and_what_to_do(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(database, "UPDATE checkpoints SET checkpoint = x'00' WHERE thread_id = 'half-run'")
    with pytest.raises(SystemExit):
        main(["verify", "--db", str(database)])
    text = capsys.readouterr().out
    assert "programs and verdicts can be read, cannot be resumed" in " ".join(text.split())
    assert f"ksearch verify --db {database} --salvage NEW.db" in text


@pytest.mark.parametrize("share", [0.95, 0.7, 0.4, 0.1])
def test_what_is_left_of_a_truncated_file_is_salvaged(database: Path, whole: bytes, share: float) -> None:
    database.write_bytes(whole[: int(len(whole) * share)])
    new = database.with_name("new.db")
    code, found, _ = verify(database, "--salvage", new)
    assert code == 1
    assert any("truncated" in line for line in found["file"])
    kept = opened(new)
    for table in found["tables"]:
        assert table["sound"] <= kept[table["table"]] or table["table"] in ("checkpoints", "writes")
    if share > 0.9:
        assert kept["programs"] and kept["checkpoints"]


def opened(path: Path) -> dict[str, int]:
    """`ksearch` opens the file; the number of rows in each of its tables."""
    with redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as end:
        main(["runs", "--db", str(path)])
    assert not end.value.code
    names = ("runs", "programs", "verdicts", "baselines", "model_calls", "branches", "events", "checkpoints", "writes")
    return {name: query(path, f"SELECT count(*) FROM {name}")[0][0] for name in names}


def test_pages_overwritten_in_the_middle_cost_what_lay_in_them_and_no_more(database: Path, whole: bytes) -> None:
    size, seen = 4096, 0
    for page in range(1, len(whole) // size):
        database.write_bytes(whole[: page * size] + b"\xa5" * size + whole[(page + 1) * size :])
        found = examine(database)
        seen += not found.sound()
        assert lost(found) <= 60, (page, lost(found))
    assert seen >= 0.9 * (len(whole) // size - 1), "a free page may be overwritten without any harm"


def lost(found: Examination) -> int:
    return sum(len(table.damaged) for table in found.contents.tables.values())


def test_a_salvaged_run_goes_on_from_where_it_is_whole(database: Path, whole: bytes, tmp_path: Path) -> None:
    newest = "(SELECT max(checkpoint_id) FROM checkpoints WHERE thread_id = 'half-run')"
    change(database, f"UPDATE checkpoints SET checkpoint = x'00' WHERE checkpoint_id = {newest}",
           "DELETE FROM runs WHERE run = 'half-run'")  # fmt: skip
    assert verify(database, "--salvage", tmp_path / "new.db")[0] == 1
    services = FakeServices(tmp_path / "new.db")
    services.evaluator = VouchedEvaluator(services.task)
    final = resume(compiled(services), run="half-run")
    archive = Archive(tmp_path / "new.db")
    events = archive.events("half-run", final["branch"])
    tree = SearchTree.model_validate(final["tree"])
    assert final["status"] == "done"
    assert apply(new_tree(tree["n0"].intent.title), list(events)).tree == tree
    assert {row["run"]: row["status"] for row in archive.runs()} == {"half-run": "done", "done-run": "done"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [(b"shopping list\n" * 500, "not an SQLite database"), (b"", "empty"), (b"SQLite format 3\0" + bytes(90), "header"),
     (b"SQLite format 3\0", "not an SQLite database")],
)  # fmt: skip
def test_what_is_no_database_is_said_to_be_none(tmp_path: Path, text: bytes, problem: str) -> None:
    path = tmp_path / "k.db"
    path.write_bytes(text)
    code, found, _ = verify(path, "--salvage", tmp_path / "new.db")
    assert code == 1 and problem in found["file"][0] and found["runs"] == []
    assert not (tmp_path / "new.db").exists()


def test_another_programs_database_is_said_to_hold_nothing_of_ours(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "k.db")) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    code, found, _ = verify(tmp_path / "k.db")
    assert code == 1 and "no table of K-Search" in found["file"][0]


def test_a_missing_file_and_an_unknown_run_are_wrong_usage(database: Path, tmp_path: Path) -> None:
    assert verify(tmp_path / "absent.db")[::2] == (
        2, f"ksearch: {tmp_path}/absent.db: no such file; --db names another\n",
    )  # fmt: skip
    code, _, complaint = verify(database, "nosuchrun")
    assert code == 2 and "done-run"[:8] in complaint
    code, _, complaint = verify(database, "--salvage", database)
    assert code == 2 and "exists already" in complaint


def test_one_run_is_judged_by_what_concerns_it(database: Path) -> None:
    change(database, "UPDATE model_calls SET reply = x'00' WHERE run = 'half-run' AND ordinal = 0")
    assert [verify(database, run)[0] for run in ("half", "last", "done")] == [1, 1, 0]
    _, found, _ = verify(database, "done")
    assert outlooks(found) == {"done-run": "whole"}
    counts = {table["table"]: table["sound"] for table in found["tables"]}
    assert counts["runs"] == 1 and counts["events"] == query(
        database, "SELECT count(*) FROM events WHERE run = 'done-run'")[0][0]  # fmt: skip
