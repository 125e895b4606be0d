"""The command line as a person or a script meets it: real processes, real evaluations on a tiny task."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import chdir, closing, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from small_runs import KSEARCH, environment, ksearch, small_task, until

from graph.cli import main
from state.archive import Archive
from state.lease import Lease
from tasks import lock

LABEL = "playbook: no LLM; ideas and code are hand-written"
QUICK = ("--budget", "3", "--stagnation", "1", "--threads", "1")
LONG = ("--budget", "30", "--stagnation", "1", "--threads", "1")
RIGHT = """
#include <cstdint>
extern "C" void rows(const float *x, const float *y, float *out, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; ++i) {
        out[i] = 0;
        for (int64_t j = 0; j < columns; ++j)
            out[i] += (x[i * columns + j] - y[i * columns + j]) * (x[i * columns + j] - y[i * columns + j]);
    }
}
"""

pytestmark = pytest.mark.timeout(600)


class Place:
    """A folder with the tiny task in it, and the runs that are made there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """A command in this process, which has imported everything already."""
        out, errors, before, code = io.StringIO(), io.StringIO(), sys.stdin, 0
        sys.stdin = io.StringIO(stdin)
        try:
            with chdir(self.folder), redirect_stdout(out), redirect_stderr(errors):
                main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.stdin = before
        return subprocess.CompletedProcess(list(arguments), code, out.getvalue(), errors.getvalue())

    def json(self, *arguments: object) -> Any:
        done = self(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def newest(self, database: str = ".ksearch/ksearch.db") -> dict[str, Any]:
        newest: dict[str, Any] = self.json("runs", "--db", database)[0]
        return newest

    def tree(self, run: str) -> Any:
        return self.json("tree", run)


@pytest.fixture(autouse=True)
def no_choices_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    small_task(tmp_path)
    return Place(tmp_path)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place with one finished run, whose output is in the file `output`. Tests only look at it."""
    folder = tmp_path_factory.mktemp("finished")
    small_task(folder)
    done = Place(folder)
    ran = ksearch("run", "./rows", *QUICK, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    (folder / "output").write_text(ran.stdout)
    return done


def begun(place: Place, *arguments: str) -> subprocess.Popen[str]:
    """A command that goes on, with its output to be read."""
    return subprocess.Popen([KSEARCH, *arguments], cwd=place.folder, env=environment(), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip


def lines_until(process: subprocess.Popen[str], start: str) -> list[str]:
    """What the process prints up to the line that begins so."""
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if line.startswith(start):
            return lines
    raise AssertionError(f"no line begins with {start!r}: {''.join(lines)}")


def refused(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> None:
    """One message on standard error, no result, the exit code."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert done.stderr.count("ksearch: ") == 1 and done.stderr.startswith("ksearch: "), done.stderr
    for word in words:
        assert word in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_a_run_prints_plain_lines_and_its_result(finished: Place) -> None:
    lines = (finished.folder / "output").read_text().splitlines()
    assert "\x1b" not in "".join(lines)
    run = finished.newest()["run"]
    assert lines[0].startswith(f"run {run[:8]}: task rows, model playbook, budget 3, database .ksearch/ksearch.db")
    assert lines[1] == LABEL
    assert "round 1: n1 Eight partial sums (V 0.70)" in lines
    attempts = [line for line in lines if re.match(r"\[ +\d+/3\] n\d .* #\d: ", line)]
    assert len(attempts) >= 3
    assert lines[-2] == LABEL
    assert f"ksearch best {run[:8]}" in lines[-1]
    assert any(line.startswith("Ended because ") for line in lines)


def test_the_list_of_runs_has_the_promised_keys_newest_first(finished: Place) -> None:
    first = {"run", "task", "status", "best_score", "evaluations", "model_calls", "budget", "model"}
    (row,) = finished.json("runs")
    assert row.keys() >= first
    assert (row["task"], row["status"], row["budget"], row["model"]) == ("rows", "done", 3, "playbook")
    assert row["evaluations"] == 3 and row["model_calls"] > 3
    database = finished.folder / "two.db"
    shutil.copy(finished.folder / ".ksearch" / "ksearch.db", database)
    with closing(Archive(database)) as archive:
        archive.save_run("01a22ea1-c6f2", {"task": "b", "status": "running", "evaluations": 0, "budget": 1})
        archive.save_run("01a22ea1-c7f2", {"task": "c", "status": "running", "evaluations": 0, "budget": 1})
    rows = finished.json("runs", "--db", database)
    assert [row["task"] for row in rows] == ["c", "b", "rows"]
    assert [row["short"] for row in rows] == ["01a22ea1-c7", "01a22ea1-c6", row["run"][:8]]
    refused(finished("tree", "01a22ea1", "--db", database), "fits 2 runs", "01a22ea1-c7, 01a22ea1-c6")


def test_a_run_can_be_looked_into(finished: Place) -> None:
    run = finished.newest()["run"]
    tree = finished.json("tree", "last")
    assert tree["label"] == LABEL and tree == finished.json("tree", run[:6])
    text = finished("tree", "last").stdout
    assert LABEL in text and all(node["intent"]["title"] in text for node in tree["nodes"])
    state = finished.json("show", "last")
    assert state["run"] == run and state["status"] == "done" and state["result"]["stop_reason"] == state["stop_reason"]
    assert LABEL in finished("show", "last").stdout
    node = finished.json("show", "last", "n1")
    assert node["node"]["intent"]["title"] == "Eight partial sums" and node["attempts"]


def test_a_program_is_shown_with_its_verdict_receipt_code_and_difference(place: Place) -> None:
    (place.folder / "seed.cpp").write_text(RIGHT)
    assert place("run", "rows", "--seed-program", "seed.cpp", "--budget", "1", "--threads", "1").returncode == 0
    if place.json("tree", "last")["nodes"][0]["program_id"] is None:
        pytest.skip("the seed did not pass on this busy machine")
    program = place.json("show", "last", "n1")["attempts"][0]["program_id"]
    shown = place.json("show", "last", program[:8])
    assert shown["program"].keys() >= {"id", "language", "source", "parent", "verdicts"}
    assert shown["program"]["verdicts"][0]["receipt"]["program_id"] == program
    text = place("show", "last", program).stdout
    for part in ("Eight partial sums", '{"intent": "eight"', "Against its parent", "-#include", "Verdict (the attempt)",
                 "Receipt", "compiler_flags"):  # fmt: skip
        assert part in text, part
    assert shown["program"]["parent"] in text


def test_the_best_program_can_be_taken_away(finished: Place) -> None:
    best = finished.newest()["best_program"]
    if best is None:
        refused(finished("best", "last"), "no program that passed", code=1)
        pytest.skip("no program passed on this busy machine")
    out = finished.folder / "out" / "deep"
    assert finished("best", "last", "--out", out).returncode == 0
    source = (out / "kernel.cpp").read_text()
    assert finished("best", "last").stdout.split() == source.split()
    result = json.loads((out / "result.json").read_text())
    assert result.keys() >= {"task", "entry_point", "run", "program", "label", "march", "score", "timings", "receipt"}
    assert (result["program"], result["label"]) == (best, LABEL)
    assert finished.json("best", "last")["source"] == source
    refused(finished("best", "last", "--out", "output/inside"), "output/inside", "cannot be written", code=1)


def test_a_finished_run_stays_as_it_is(finished: Place) -> None:
    before = finished.json("show", "last")
    again = finished("resume", "last")
    assert again.returncode == 0 and "is done already" in again.stdout
    assert finished.json("show", "last") == before
    refused(finished("edit", "last", '{"kind": "prune", "node": "n1"}'), "is done")
    refused(finished("approve", "last"), "no edits", "done")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_effect_in_flight_and_resume_finishes(place: Place, number: signal.Signals) -> None:
    with begun(place, "run", "./rows", *LONG) as process:
        lines_until(process, "round 1")
        with lock.timing():
            process.send_signal(number)
            assert process.stderr is not None
            assert "stopping after the step in flight" in process.stderr.readline()
        rest, errors = process.communicate()
    assert process.returncode == 75, errors
    found = re.search(r"nothing is lost\. Go on with: ksearch (resume [0-9a-f]{8})$", errors, re.MULTILINE)
    assert found, errors
    spent = place.newest()["evaluations"]
    assert (place.newest()["status"], spent) == ("paused", rest.count("[  1/30]"))
    done = place(*found[1].split())
    assert done.returncode == 0, done.stderr
    (row,) = place.json("runs")
    assert row["status"] == "done" and f"{row['evaluations']} evaluations" in done.stdout


def test_a_second_signal_stops_at_once(place: Place) -> None:
    with begun(place, "run", "./rows", *LONG) as process:
        lines_until(process, "round 1")
        with lock.timing():
            until(lambda: Lease(place.folder / ".ksearch/ksearch.db", place.newest()["run"]).held_elsewhere(), "begun")
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None and "stopping" in process.stderr.readline()
            process.send_signal(signal.SIGINT)
            errors = process.communicate()[1]
    assert process.returncode == 75 and "nothing is lost" in errors and "Traceback" not in errors
    assert place("resume", "last").returncode == 0


def test_a_killed_run_is_resumed_and_pays_nothing_twice(place: Place) -> None:
    with begun(place, "run", "./rows", *LONG) as process:
        lines_until(process, "[  1/30]")
        process.kill()
    run = place.newest()["run"]
    database = place.folder / ".ksearch" / "ksearch.db"
    with closing(Archive(database)) as archive:
        paid = archive._all("SELECT program, purpose, created FROM verdicts ORDER BY rowid", [])
    done = place("resume", run[:8])
    assert done.returncode == 0, done.stderr
    with closing(Archive(database)) as archive:
        after = archive._all("SELECT program, purpose, created FROM verdicts ORDER BY rowid", [])
        events = archive.events(run, "main")
    assert after[: len(paid)] == paid and len(paid) > 0
    attempts = [event for event in events if event.kind == "attempt" and event.verdict not in ("duplicate", "unusable")]
    assert place.newest()["evaluations"] == len(attempts)


def test_a_second_process_on_a_run_is_refused(place: Place) -> None:
    with begun(place, "run", "./rows", *LONG) as process:
        lines_until(process, "round 1")
        with lock.timing():
            run = place.newest()["run"]
            assert place.newest()["status"] == "running"
            for command in (["resume", run], ["edit", run, '{"kind": "update", "node": "n1", "priority": 0.1}']):
                done = place(*command)
                refused(done, f"pid {process.pid}", "another process", "nothing was changed", code=1)
            process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 75


def test_a_task_folder_runs_from_anywhere(place: Place) -> None:
    checked = place("check", "rows", "--threads", "1")
    assert checked.returncode == 0 and 'extern "C" void rows(' in checked.stdout and "eager" in checked.stdout
    plain = place.json("check", "rows", "--threads", "1")
    assert plain["intents"] == 3 and [row["workload"] for row in plain["baseline"]]
    inside = place.folder / "rows"
    database = place.folder / "other" / "runs.db"
    with begun(Place(inside), "run", ".", *LONG, "--db", str(database)) as process:
        lines_until(process, "[  1/30]")
        process.terminate()
        errors = process.communicate()[1]
    assert f"--db {database}" in errors
    elsewhere = Place(place.folder / "other")
    assert ksearch("resume", "last", cwd=elsewhere.folder, KSEARCH_DB=str(database)).returncode == 0
    assert elsewhere.newest("runs.db")["task"] == "rows"


def test_programs_are_judged_without_a_run(place: Place) -> None:
    programs = place.folder / "programs"
    programs.mkdir()
    (programs / "a_broken.cpp").write_text("this is no C++")
    (programs / "b_wrong.cpp").write_text(RIGHT.replace("+=", "="))
    rows = place.json("eval", "rows", programs, "--threads", "1")
    assert [(row["file"], row["kind"], row["score"], row["rank"], row["correct"]) for row in rows] == [
        ("a_broken.cpp", "compile_error", 0.0, None, 0), ("b_wrong.cpp", "wrong_result", 0.0, None, 0),
    ]  # fmt: skip
    assert all(len(row["verdicts"]) == len(row["receipt_ids"]) == 1 and row["message"] for row in rows)
    text = place("eval", "rows", programs / "a_broken.cpp", "--threads", "1")
    assert text.returncode == 0 and "a_broken.cpp: compile error: " in text.stdout
    assert not (place.folder / ".ksearch").exists()
    refused(place("eval", "rows", "none.cpp"), "none.cpp: cannot be read (No such file or directory)")
    refused(place("eval", "rows", "rows/playbook"), "holds no program")
    refused(place("eval", "rows", "rows/task.toml"), "takes cpp programs")


def test_programs_are_ranked_over_several_measurements(place: Place) -> None:
    (place.folder / "right.cpp").write_text(RIGHT)
    (place.folder / "again.cpp").write_text("// the same\n" + RIGHT)
    rows = place.json("eval", "rows", "right.cpp", "again.cpp", "--threads", "1", "--repeats", "2")
    if any(row["kind"] != "passed" for row in rows):
        pytest.skip("one did not pass on this busy machine")
    assert [row["rank"] for row in rows] == [1, 2] and rows[0]["score"] >= rows[1]["score"]
    assert {row["file"] for row in rows} == {"right.cpp", "again.cpp"}
    for row in rows:
        assert len(set(row["receipt_ids"])) == len(row["verdicts"]) == 2
        assert (row["correct"], row["workloads"], len(row["timings"])) == (3, 3, 3)
    text = place("eval", "rows", "right.cpp", "--threads", "1", "--workloads").stdout
    assert "3/3" in text and "r64_c8192" in text and "[1/" not in text


def test_edits_are_approved_by_typing(place: Place) -> None:
    waits = place("run", "rows", *QUICK, "--approve", "edits")
    assert waits.returncode == 75 and "3 tree edits wait for your word" in waits.stderr
    assert place.newest()["status"] == "waiting"
    gone = place("approve", "last", stdin="a\n")
    assert gone.returncode == 75 and "nothing was decided" in gone.stderr
    typed = "maybe\na\ne\npriority=nonsense\npriority=0.95; title=Sixteen lanes\nr\nnot on two cores\n"
    done = place("approve", "last", stdin=typed)
    assert done.returncode == 75, done.stderr
    assert "(1/3) insert 'Eight partial sums' below n0" in done.stdout
    assert "round 1: n2 Sixteen lanes (V 0.95)" in done.stdout
    nodes = place.json("tree", "last")["nodes"]
    assert [(n["intent"]["title"], n["author"]) for n in nodes[1:]] == [
        ("Eight partial sums", "model"), ("Sixteen lanes", "person"),
    ]  # fmt: skip


def test_edits_are_approved_by_scripts_and_a_stale_answer_changes_nothing(place: Place) -> None:
    assert place("run", "rows", *QUICK, "--budget", "12", "--approve", "edits").returncode == 75
    request = place.json("approve", "last")
    assert request["kind"] == "approval" and len(request["action_requests"]) == 3
    before = place.json("show", "last")
    decisions = [{"type": "approve"}, {"type": "reject"}, {"type": "reject"}]
    answers = {
        "stale": {"pending": "0000000000000000", "decisions": decisions},
        "2 decisions for 3 edits": {"pending": request["pending"], "decisions": decisions[:2]},
        "decisions": {"pending": request["pending"]},
    }
    for problem, answer in answers.items():
        refused(place("approve", "last", json.dumps(answer)), "nothing was applied", problem)
    refused(place("approve", "last", "{no json"), "cannot be read")
    refused(place("approve", "last", "nofile.json"), "cannot be read")
    assert place.json("show", "last") == before and place.json("approve", "last") == request
    waits = place("resume", "last")
    assert waits.returncode == 75 and "ksearch approve" in waits.stderr
    (place.folder / "answer.json").write_text(json.dumps({"pending": request["pending"], "decisions": decisions}))
    assert place("approve", "last", "answer.json").returncode == 75
    assert [node["intent"]["title"] for node in place.json("tree", "last")["nodes"][1:]] == ["Eight partial sums"]
    request = place.json("approve", "last")
    answer = {"pending": request["pending"], "decisions": [{"type": "approve"} for _ in request["action_requests"]]}
    assert place("approve", "last", "-", stdin=json.dumps(answer)).returncode in (0, 75)


def test_only_prunes_wait_under_that_policy(place: Place) -> None:
    waits = place("run", "rows", *QUICK, "--budget", "12", "--approve", "prunes")
    assert waits.returncode == 75 and "1 tree edit waits" in waits.stderr
    request = place.json("approve", "last")
    assert [action["name"] for action in request["action_requests"]] == ["prune"]
    assert "too little work for two cores" in request["action_requests"][0]["description"]
    assert len(place.json("tree", "last")["nodes"]) == 4
    done = place("approve", "last", stdin="a\n")
    assert done.returncode == 0, done.stderr
    assert place.json("tree", "last")["nodes"][3]["status"] == "pruned"


def test_a_person_changes_the_tree_of_a_waiting_run(place: Place) -> None:
    assert place("run", "rows", *QUICK, "--budget", "12", "--approve", "prunes").returncode == 75
    refused(place("edit", "last", '{"kind": "update"}'), "node: Field required")
    refused(place("edit", "last", "no json"), "Invalid JSON")
    inserted = {"kind": "insert", "parent": "n0", "title": "A person's idea", "priority": 0.01}
    pruned = {"kind": "prune", "node": "n2"}
    done = place("edit", "last", json.dumps(inserted), json.dumps(pruned))
    assert done.returncode == 0 and "2 edits are kept" in done.stdout
    assert place.newest()["status"] == "waiting"
    assert place("approve", "last", stdin="r\nleave it\n").returncode in (0, 75)
    nodes = {node["intent"]["title"]: node for node in place.json("tree", "last")["nodes"]}
    assert nodes["A person's idea"]["author"] == "person"
    assert nodes["Sixteen partial sums"]["status"] == "pruned"
    assert nodes["Rows over the cores"]["status"] != "pruned"


def test_tasks_and_the_graph_are_printed(finished: Place) -> None:
    rows = finished.json("tasks")
    assert {"int8_gemm", "rmsnorm_swiglu"} <= {row["name"] for row in rows}
    assert all(len(row["workloads"]) >= 3 for row in rows)
    with_playbook = {row["name"] for row in rows if row["intents"] > 1}
    assert with_playbook >= {"int8_gemm", "rmsnorm_swiglu", "softmax", "gqa_decode_cpu"}
    row = next(row for row in rows if row["name"] == "int8_gemm")
    assert row["devices"] == {"cpu": 3, "cuda": 3} and row["tools"]["cuda"] == ["nvcc", "apache-tvm-ffi"]
    assert "int8_gemm" in finished("tasks").stdout
    picture = finished("graph").stdout
    for edge in ("initialize", "approve --> select", "instantiate", "co_evolve", "finish"):
        assert edge in picture, edge
    assert picture.startswith("---") or picture.startswith("graph")
    assert {node["id"] for node in finished.json("graph")["nodes"]} >= {"initialize", "finish"}


def test_a_new_task_never_replaces_anything(finished: Place) -> None:
    before = contents(finished.folder)
    refused(finished("new", "rows"), "exists already; nothing was changed")
    refused(finished("new", "9 lives"), "cannot name a task")
    refused(finished("new", "output/inside"), "cannot be written", code=1)
    assert contents(finished.folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Every file's bytes, apart from the database and what Python caches."""
    files = [path for path in folder.rglob("*") if path.is_file() and not {".ksearch", "__pycache__"} & {*path.parts}]
    return {str(path): path.read_bytes() for path in files}


WRONG_RUNS = {
    "unknown task": (["nonesuch"], ["unknown task 'nonesuch'", "int8_gemm"]),
    "no such folder": (["./nowhere"], ["nowhere/task.toml: cannot be read"]),
    "no task.toml": (["rows/playbook"], ["task.toml: cannot be read"]),
    "unknown model": (["rows", "--model", "gpt"], ["unknown model 'gpt'", "playbook", "openai:NAME"]),
    "no key": (["rows", "--model", "openai:gpt-5"], ["set OPENAI_API_KEY"]),
    "no key for one role": (["rows", "--coder", "google_genai:gemini-x"], ["set GOOGLE_API_KEY"]),
    "missing seed": (["rows", "--seed-program", "none.cpp"], ["none.cpp: cannot be read (No such file or directory)"]),
    "seed in a folder of none": (["rows", "--seed-program", "rows"], ["rows: holds no program (.cpp)"]),
    "seed in another language": (["rows", "--seed-program", "rows/reference.py"], ["takes cpp programs"]),
    "march that g++ does not know": (["rows", "--march", "pentium99"], ["does not accept -march=pentium99"]),
    "march that is no word": (["rows", "--march", "a b"], ["march"]),
    "approval policy": (["rows", "--approve", "maybe"], ["approve", "'prunes'"]),
    "minutes": (["rows", "--max-minutes", "-1"], ["max_minutes"]),
}


@pytest.mark.parametrize("name", WRONG_RUNS)
def test_a_run_that_cannot_begin_leaves_nothing_behind(finished: Place, tmp_path: Path, name: str) -> None:
    shutil.copytree(finished.folder / "rows", tmp_path / "rows")
    arguments, words = WRONG_RUNS[name]
    place = Place(tmp_path)
    done = place("run", *arguments)
    refused(done, *words)
    assert done.stdout == ""
    assert not (tmp_path / ".ksearch").exists() or place.json("runs") == []


BROKEN_TASKS = {
    "bad TOML": ("task.toml", lambda text: text + "\nx = ", ["task.toml: not valid TOML"]),
    "unknown key": ("task.toml", lambda text: "colour = 1\n" + text, ["task.toml: colour: "]),
    "bad value": ("task.toml", lambda text: text.replace("atol = 1e-3", "atol = -1"), ["task.toml: tolerance.atol: "]),
    "missing function": ("reference.py", lambda text: text.replace("def eager", "def other"), ["eager: not defined"]),
    "raising": ("reference.py", lambda text: text + "\nraise RuntimeError('boom')\n", ["reference.py: ", "boom"]),
    "bad playbook": (
        "playbook/cpp/intents.toml",
        lambda text: text.replace('"eight"', '"sixteen"'),
        ["intents.toml: "],
    ),
    "bad template": ("playbook/cpp/kernel.cpp.j2", lambda text: text + "{{ nothing }}", ["kernel.cpp.j2: ", "nothing"]),
}


@pytest.mark.parametrize("name", BROKEN_TASKS)
def test_a_broken_task_folder_is_named_with_its_file_and_key(finished: Place, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "rows"
    shutil.copytree(finished.folder / "rows", folder)
    file, spoil, words = BROKEN_TASKS[name]
    (folder / file).write_text(spoil((folder / file).read_text()))
    before = contents(folder)
    refused(Place(tmp_path)("check", "rows", "--threads", "1"), *words)
    refused(Place(tmp_path)("run", "rows", *QUICK), *words)
    assert contents(folder) == before


def test_no_playbook_and_no_model_lists_the_choices(finished: Place, tmp_path: Path) -> None:
    shutil.copytree(finished.folder / "rows", tmp_path / "rows")
    shutil.rmtree(tmp_path / "rows" / "playbook")
    refused(Place(tmp_path)("run", "rows"), "no playbook", "openai:NAME", "google_genai:NAME")
    refused(Place(tmp_path)("run", "rows", "--model", "playbook"), "no playbook")


def text_file(real: Path, made: Path) -> None:
    made.write_text("Dear diary,\n" * 500)


def half_a_database(real: Path, made: Path) -> None:
    made.write_bytes(real.read_bytes()[: real.stat().st_size // 2])


def another_database(real: Path, made: Path) -> None:
    made.write_bytes(b"SQLite format 3\0" + os.urandom(5000))


@pytest.mark.parametrize("spoil", [text_file, half_a_database, another_database])
def test_a_file_that_is_no_database_is_left_as_it_is(finished: Place, tmp_path: Path, spoil: Any) -> None:
    real = finished.folder / ".ksearch" / "ksearch.db"
    database = tmp_path / "runs.db"
    with closing(Archive(real)) as archive:
        archive._execute("PRAGMA wal_checkpoint(TRUNCATE)", [])
    spoil(real, database)
    before = database.read_bytes()
    for command in (["runs"], ["tree", "last"], ["resume", "last"], ["run", "rows", *QUICK]):
        refused(finished(*command, "--db", database), str(database), "left as it is", "--db")
        assert database.read_bytes() == before


@pytest.mark.parametrize("where", ["output/runs.db", "/proc/nowhere/runs.db", "rows"])
def test_a_database_that_cannot_be_made_is_said_so(finished: Place, where: str) -> None:
    refused(finished("run", "rows", *QUICK, "--db", where), "cannot be", "--db")
    assert (finished.folder / "output").is_file()


def test_unknown_runs_nodes_and_servers(finished: Place, tmp_path: Path) -> None:
    for command in (["tree", "zzz"], ["show", "zzz"], ["best", "zzz"], ["resume", "zzz"], ["approve", "zzz"],
                    ["studio", "zzz"], ["edit", "zzz", '{"kind": "prune", "node": "n1"}']):  # fmt: skip
        refused(finished(*command), "'zzz' is not the id of one run", finished.newest()["run"][:8])
    refused(finished("show", "last", "n99"), "'n99' is neither a node")
    refused(finished("runs", "--db", "none.db"), "none.db: no such database")
    refused(finished("studio", "last", "--url", "http://127.0.0.1:9"), "make studio", code=1)
    refused(Place(tmp_path)("runs"), ".ksearch/ksearch.db: no such database", "ksearch run TASK")
    assert list(tmp_path.iterdir()) == []
