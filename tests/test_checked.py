"""A program that is right where it is timed has not passed until it is right on every checked workload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_task import CALL_RIGHT, TOML, program, write_task

from state.verdict import Passed, WrongResult
from tasks.local import LocalEvaluator
from tasks.task import Task, TaskError

CHECKED = """
[[checked]]
name = "odd"
dims = { m = 3, n = 17 }

[[checked]]
name = "on_a_gpu"
device = "cuda"
dims = { m = 3, n = 18 }
"""


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    return write_task(tmp_path_factory.mktemp("tasks") / "checked", toml=TOML + CHECKED).narrowed("cpp")


@pytest.fixture(scope="module")
def strict(task: Task) -> Iterator[LocalEvaluator]:
    made = LocalEvaluator(task, rounds=3)
    yield made
    made.close()


def test_a_language_sees_the_checked_workloads_of_its_device(task: Task) -> None:
    assert [load.name for load in task.checked] == ["odd"]


def test_what_is_wrong_on_a_checked_workload_does_not_pass(strict: LocalEvaluator) -> None:
    spoilt = program(f"{CALL_RIGHT} if (n == 17) y[2] += 1;")
    for verdict in (strict.evaluate(spoilt), strict.held_out(spoilt)):
        assert isinstance(verdict, WrongResult), verdict
        assert verdict.workload == "odd"


def test_checked_workloads_are_not_timed_and_the_receipt_counts_them(strict: LocalEvaluator) -> None:
    verdict = strict.evaluate(program())
    assert isinstance(verdict, Passed), verdict
    assert [timing.workload for timing in verdict.timings] == ["wide", "tall"]
    assert verdict.receipt is not None
    assert "outputs on 1 untimed workload(s)" in verdict.receipt.checks


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('name = "odd"', 'name = "wide"', "two workloads are named 'wide'"),
        ("m = 3, n = 17", "m = 3", "workload 'odd' must give exactly the dims"),
    ],
)
def test_checked_workloads_are_held_to_the_rules_of_the_others(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    with pytest.raises(TaskError, match=problem):
        write_task(tmp_path / "bad", toml=TOML + CHECKED.replace(old, new))
