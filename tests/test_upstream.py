"""A submission is graded by upstream's harness in an enclosure, and nothing of it is left."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gpumode_problem import BLIND, RIGHT, TASK, write_problem
from typer.testing import CliRunner

from graph.cli import app
from tasks import grades
from tasks.grades import Case, benchmarks_of, lines_of, outcome_of, score_of
from tasks.isolation import alive, descendants
from tasks.upstream import Request, grade

ROOT = Path(__file__).resolve().parent.parent
HARNESS = """
import os, sys
import submission
out = os.fdopen(int(os.environ["POPCORN_FD"]), "w")
specs = open(sys.argv[2]).read().splitlines()
submission.judge(lambda key, value: print(f"{key}: {value}", file=out, flush=True), sys.argv[1], specs)
out.close()
"""
ALL_PASS = """
def judge(log, mode, specs):
    for index, spec in enumerate(specs):
        if mode == "test":
            log(f"test.{index}.status", "pass")
        else:
            log(f"benchmark.{index}.mean", 1000.0 * 10 ** index)
            log(f"benchmark.{index}.runs", 7)
    log("check", "pass")
"""


def request(judge: str = ALL_PASS, **changes: Any) -> Request:
    """A request with a harness that leaves everything to the submission, and takes no PyTorch."""
    files = {"eval.py": HARNESS, "submission.py": textwrap.dedent(judge)}
    plain = Request("toy/plain", files, "eval.py", "submission.py", "size: 1; seed: 3\nsize: 2; seed: 4\n",
                    "size: 8\nsize: 9\nsize: 10\n", 10.0, 10.0, 10.0, "geom")  # fmt: skip
    return replace(plain, **changes)


def test_grading_needs_the_standard_library_alone() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import tasks.upstream, tasks.harness"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_lines_are_read_as_upstream_reads_them() -> None:
    lines = lines_of("check: fail\ntest.0.status:pass\nspec: a: 1; b: 2\n\ncheck: pass\nno colon\n")
    assert lines == {"check": "pass", "test.0.status": "pass", "spec": "a: 1; b: 2", "no colon": ""}


@pytest.mark.parametrize(
    ("lines", "status", "expected"),
    [
        ({"check": "pass"}, 0, "passed"),
        ({"check": "fail"}, 0, "failed"),
        ({"check": "fail"}, 112, "failed"),
        ({"check": "pass"}, 112, "failed"),
        ({"check": "pass"}, 1, "crashed"),
        ({"check": "pass"}, -9, "crashed"),
        ({}, 0, "crashed"),
        ({"check": "pass"}, None, "timed_out"),
    ],
)
def test_what_a_run_came_to(lines: dict[str, str], status: int | None, expected: str) -> None:
    assert outcome_of(lines, status) == expected


def test_a_case_that_was_never_reached_is_missing() -> None:
    tests = grades.tests_of({"test.0.status": "pass", "test.1.status": "fail", "test.1.error": "off"}, ["a", "b", "c"])
    assert tests == (Case("a", "pass"), Case("b", "fail", "off"), Case("c", "missing"))
    lines = {"benchmark.0.mean": "12.5", "benchmark.0.runs": "3", "benchmark.0.best": "nan",
             "benchmark.1.status": "fail", "benchmark.1.error": "off", "benchmark.2.mean": "-1"}  # fmt: skip
    assert benchmarks_of(lines, ["a", "b", "c"]) == (
        Case("a", "pass", "", 3, {"mean": 12.5}), Case("b", "fail", "off"), Case("c", "missing")
    )  # fmt: skip


def test_scores_are_seconds_by_the_ranking() -> None:
    cases = tuple(Case("", "pass", "", 3, {"mean": mean}) for mean in (1e3, 4e3))
    scores = [score_of(cases, ranking) for ranking in ("geom", "mean", "last")]
    assert scores == [pytest.approx(2e-6), pytest.approx(2.5e-6), pytest.approx(4e-6)]
    assert score_of((*cases, Case("", "missing")), "geom") is None
    assert score_of((), "geom") is None


def test_leaderboard_runs_all_three_and_ranks_them() -> None:
    found = grade(request(), "leaderboard", seed=5)
    assert [phase.mode for phase in found.phases] == ["test", "benchmark", "leaderboard"]
    assert found.passed
    assert not found.trusted
    assert [len(phase.cases) for phase in found.phases] == [2, 3, 3]
    assert found.phases[2].cases[1] == Case("size: 9", "pass", "", 7, {"mean": 10000.0})
    assert found.score_s is not None
    assert math.isclose(found.score_s, 1e-5)


def test_ranking_by_the_last_benchmark_runs_it_alone() -> None:
    found = grade(request(ranking_by="last"), "benchmark")
    assert [case.spec for case in found.phases[0].cases] == ["size: 10"]
    assert found.score_s == pytest.approx(1e-6)


def test_what_fails_its_tests_is_not_timed() -> None:
    judge = """
    import sys
    def judge(log, mode, specs):
        log("test.1.status", "pass")
        log("test.0.status", "fail")
        log("test.0.error", "3 elements differ")
        log("check", "fail")
        sys.exit(112)
    """
    found = grade(request(judge), "leaderboard")
    assert [(phase.mode, phase.outcome) for phase in found.phases] == [("test", "failed")]
    assert found.phases[0].cases[0] == Case("size: 1; seed: 3", "fail", "3 elements differ")
    assert (found.passed, found.score_s) == (False, None)


def test_the_harness_is_told_seed_and_cases_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = """
    import os
    def judge(log, mode, specs):
        open("written.txt", "w").write("upstream's folder can be written")
        log("test.0.status", "pass")
        log("test.0.message", [mode, specs, os.environ.get("POPCORN_SEED"), "KEY" in str(os.environ), os.listdir(".")])
        log("check", "pass")
    """
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    message = grade(request(judge), "test", seed=77).phases[0].cases[0].message
    assert message.startswith("['test', ['size: 1; seed: 3', 'size: 2; seed: 4'], '77', False, ")
    assert "written.txt" in message
    assert ", None, False, " in grade(request(judge), "test").phases[0].cases[0].message


def test_much_that_is_written_does_not_block() -> None:
    judge = """
    def judge(log, mode, specs):
        for index in range(3):
            log("test.0.message", "x" * 100_000)
        log("test.0.status", "pass")
        log("check", "pass")
    """
    found = grade(request(judge), "test").phases[0]
    assert (found.outcome, len(found.cases[0].message)) == ("passed", 100_000)


def test_a_crash_is_told_with_its_last_words() -> None:
    found = grade(request("def judge(log, mode, specs): raise MemoryError('no room')"), "test").phases[0]
    assert (found.outcome, found.exit_status) == ("crashed", 1)
    assert "MemoryError: no room" in found.message


def test_a_submission_that_ends_the_harness_has_crashed() -> None:
    judge = """
    import os, signal
    def judge(log, mode, specs):
        log("check", "pass")
        os.kill(os.getppid(), signal.SIGKILL)
    """
    found = grade(request(judge), "test")
    assert (found.passed, found.phases[0].outcome) == (False, "crashed")


def living() -> set[int]:
    return {pid for pid in descendants(os.getpid()) if alive(pid)}


def test_at_the_limit_everything_ends_also_what_left_its_session() -> None:
    judge = """
    import os, time
    def judge(log, mode, specs):
        log("test.0.status", "pass")
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
        time.sleep(600)
    """
    before, began = living(), time.monotonic()
    found = grade(request(judge, test_timeout=1.0), "leaderboard")
    assert [phase.outcome for phase in found.phases] == ["timed_out"]
    assert [case.status for case in found.phases[0].cases] == ["pass", "missing"]
    assert time.monotonic() - began < 30
    assert living() <= before


def test_nothing_outlives_a_grader_that_is_killed(tmp_path: Path) -> None:
    judge = """
    import time
    def judge(log, mode, specs):
        time.sleep(600)
    """
    file = tmp_path / "request.json"
    file.write_text(json.dumps(request(judge).__dict__))
    grader = subprocess.Popen([sys.executable, "-m", "tasks.upstream", str(file)], cwd=ROOT)
    started: set[int] = set()
    while len(started) < 3:  # the harness's process, upstream's harness, the namespace's first process
        time.sleep(0.05)
        started = {pid for pid in descendants(grader.pid) if alive(pid)}
        assert grader.poll() is None
    grader.kill()
    grader.wait()
    deadline = time.monotonic() + 10
    while (left := {pid for pid in started if alive(pid)}) and time.monotonic() < deadline:
        for pid in started:  # this process has adopted them where it is a subreaper
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)
    assert not left


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["grade", *arguments])
    return result.exit_code, " ".join(result.output.split())


def test_ksearch_grade_prints_the_grade_and_that_it_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    problem = write_problem(tmp_path, {**TASK, "benchmarks": TASK["benchmarks"][:1]})
    code, said = run(f"gpumode:{problem}", str(tmp_path / "right.py"), "--mode", "benchmark")
    assert code == 0, said
    assert "benchmark: passed" in said
    assert "Score (geom): " in said
    assert "is not trusted" in said


def test_a_wrong_submission_fails_here_and_on_another_machine(tmp_path: Path) -> None:
    (tmp_path / "blind.py").write_text(BLIND)
    task, file = f"gpumode:{write_problem(tmp_path)}", tmp_path / "request.json"
    assert run(task, str(tmp_path / "blind.py"), "--request", str(file))[0] == 0
    command = [sys.executable, "-m", "tasks.upstream", str(file), "--mode", "test"]
    elsewhere = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert elsewhere.returncode == 1
    cases = json.loads(elsewhere.stdout)["phases"][0]["cases"]
    assert [case["status"] for case in cases] == ["fail", "fail"]  # upstream reads the second case's False as true
    assert "elements differ" in cases[1]["message"]


def test_only_problems_of_gpu_mode_are_graded(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    result = CliRunner().invoke(app, ["grade", "int8_gemm", str(tmp_path / "right.py")])
    assert "only problems of GPU Mode have a harness of their own" in str(result.exception)
