"""Processes are found and ended wherever they hide, tasks' faults are named, and timings are added up rightly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny_task import REFERENCE, write_task

from tasks.device import Cpu
from tasks.faults import crash
from tasks.isolation import (
    alive,
    descendants,
    end_tree,
    held_in_files,
    kill_descendants,
    marked,
    usable_cores,
    wait_until_quiet,
)
from tasks.local import plain
from tasks.problem import Problem, ProblemError
from tasks.race import race
from tasks.timing import Pair, believed, contradicted, drift, estimate, remembered, score_noise

FAMILY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)
print("ready", flush=True)
time.sleep(600)
"""


def family(mark: str = "MARK=none") -> subprocess.Popen[bytes]:
    """A process with a child in a session of its own, and a grandchild."""
    key, value = mark.split("=")
    process = subprocess.Popen([sys.executable, "-c", FAMILY], stdout=subprocess.PIPE, env={**os.environ, key: value})
    assert process.stdout
    process.stdout.readline()
    deadline = time.monotonic() + 10
    while len(descendants(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    return process


def test_descendants_are_found_across_sessions_and_killed() -> None:
    process = family()
    below = descendants(process.pid)
    assert len(below) == 2
    assert below <= descendants(os.getpid())
    assert kill_descendants(process.pid) == below
    assert alive(process.pid)
    process.kill()
    process.wait()
    assert not alive(process.pid)


def test_orphans_are_found_by_their_mark() -> None:
    process = family("KSEARCH_TEST=orphans-4711")
    below = descendants(process.pid)
    process.kill()
    process.wait()
    assert marked("KSEARCH_TEST=orphans-4711") == below
    end_tree(process.pid, "KSEARCH_TEST=orphans-4711")
    assert not any(alive(pid) for pid in below)


def test_quiet_after_parallel_work() -> None:
    torch.ones(1 << 20).mul_(2.0)
    assert wait_until_quiet(10.0)
    assert usable_cores() >= 1


def test_memory_in_anonymous_files_is_counted_but_not_what_was_given() -> None:
    given, own = os.memfd_create("given"), os.memfd_create("own")
    try:
        os.write(given, bytes(3 << 20))
        before = held_in_files(os.getpid(), frozenset({os.fstat(given).st_ino}))
        os.write(own, bytes(5 << 20))
        assert held_in_files(os.getpid(), frozenset({os.fstat(given).st_ino})) - before == 5 << 20
        assert held_in_files(os.getpid(), frozenset()) - before == 8 << 20
    finally:
        os.close(given)
        os.close(own)


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    pairs = [Pair(10, 20), Pair(11, 22), Pair(9, 18), Pair(10, 400), Pair(10, 20)]
    found = estimate(pairs)
    assert found.baseline_us / found.latency_us == pytest.approx(2.0)
    assert found.noise == pytest.approx(0.002)
    assert score_noise([0.03, 0.04]) == pytest.approx(0.025)
    assert score_noise([0.03, 0.04], common=0.06) == pytest.approx(0.065)
    assert drift(80, 100) == pytest.approx(drift(100, 80)) == pytest.approx(0.25)


def test_a_clock_is_believed_within_the_slack() -> None:
    assert believed(950, 1000, 20) == 950
    assert believed(10, 1000, 20) == 890
    assert believed(10, 100_000, 20) == 94_940


def test_a_clock_that_is_contradicted_in_nearly_every_call() -> None:
    assert contradicted([(10, 300)] * 6, 20)
    assert not contradicted([(10, 300)] * 5, 20)
    assert contradicted([(10, 300)] * 20 + [(10, 85)], 20)
    assert not contradicted([(10, 300)] * 20 + [(10, 85)] * 5, 20)
    assert not contradicted([(200, 300)] * 6, 20)


def test_results_are_remembered_where_old_inputs_take_no_time() -> None:
    assert remembered([(10, 300)] * 6)
    assert not remembered([(10, 300)] * 5 + [(300, 300)])
    assert not remembered([(10, 40)] * 6)
    assert not remembered([(10, 300)] * 6, slack_us=260)
    assert remembered([(10, 300)] * 6, slack_us=200)


def test_how_a_process_ended_has_a_name() -> None:
    assert crash(0, 0, 100, "", "now").verdict["signal"] == "exit"
    assert crash(signal.SIGSEGV, 10, 100, "", "now").verdict["signal"] == "SIGSEGV"
    assert crash(signal.SIGSEGV, 90, 100, "", "now").verdict["signal"] == "out_of_memory"
    assert crash(signal.SIGABRT, 1, 100, "std::bad_alloc", "now").verdict["signal"] == "out_of_memory"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("import torch", "import torch\nimport no_such_module", r"reference\.py: import: ModuleNotFoundError"),
        ("import torch", "import torch\nraise SystemExit(3)", r"reference\.py: import: SystemExit"),
        ('"x": torch', '"z": torch', r"make_inputs: must return a dict with exactly the keys \['x', 's'\]"),
        ("randn(m, n", "randn(n, m", r"task\.toml: inputs\.x\.shape: says \[24, 1000\] on workload 'wide'"),
        ("return x * s[:, None], (x", "return x, (x", r"none can be used on workload 'wide': eager: y disagrees"),
        ("return x * s[:, None], (x > 0).sum(1, dtype=torch.int32)", "return x", r"reference: must return 2 tensor"),
        ("x * s[:, None]", "(x * s[:, None]).T", r"task\.toml: outputs\.y\.shape: .* reference returns \[1000, 24\]"),
        (", dtype=torch.int32", "", r"task\.toml: outputs\.positive\.dtype: says int32, but reference returns int64"),
        ("return x * s", "x.mul_(2); return x * s", r"reference: changes its input 'x'"),
    ],
)
def test_a_fault_of_a_task_names_file_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    changed = REFERENCE.replace(old, new, 1)
    assert changed != REFERENCE
    task = write_task(tmp_path, changed)
    with pytest.raises(ProblemError, match=message):
        problem = Problem(plain(task), Cpu())
        race(problem, problem.loads["wide"])
