"""An attempt of several samples, seen through whole runs with scripted models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fakes import (
    FakeServices,
    ScriptedModel,
    StatedEvaluator,
    compiled,
    edits,
    insert,
    program,
    resume,
    scripted,
    start,
)

from state.program import Program
from state.settings import Settings
from state.verdict import Verdict
from tasks.evaluator import EvaluatorUnavailable

ONE = edits(insert("first idea", 0.9))
NOTHING = edits()


class BatchEvaluator(StatedEvaluator):
    """Notes what it is asked to prepare, and is away at the n-th evaluation, once."""

    def __init__(self, task: Any) -> None:
        super().__init__(task)
        self.prepared: list[list[str]] = []
        self.away_at = 0

    def prepare(self, programs: Sequence[Program]) -> None:
        self.prepared.append([program.id for program in programs])

    def evaluate(self, program: Program) -> Verdict:
        if self.away_at and len(self.evaluated) + 1 == self.away_at:
            self.away_at = 0
            raise EvaluatorUnavailable("the device is away")
        return super().evaluate(program)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "k.db"


def with_batches(database: Path, coder: list[str]) -> tuple[FakeServices, BatchEvaluator, ScriptedModel]:
    services, _, writer = scripted(database, [ONE, NOTHING], coder)
    evaluator = BatchEvaluator(services.task)
    services.evaluator = evaluator
    return services, evaluator, writer


def scored(*scores: int) -> list[str]:
    return [program(f"J {score}", f"number {index}") for index, score in enumerate(scores)]


def attempts(services: FakeServices) -> list[Any]:
    return [event for event in services("run", Settings()).archive.events("run", "main") if event.kind == "attempt"]


def test_every_sample_is_an_event_and_the_counter_moves_once_per_attempt(database: Path) -> None:
    services, evaluator, coder = with_batches(database, scored(100, 90, 150, 80, 80, 170, 20, 30, 40, 30, 20, 10))
    state = start(compiled(services), budget=99, stagnation=2, samples=3)
    events = attempts(services)
    assert [round(event.score) for event in events[:12]] == [100, 90, 150, 80, 80, 170, 20, 30, 40, 30, 20, 10]
    assert [event.best for event in events[:12]] == [i in (0, 2, 5) for i in range(12)]
    assert (state["attempts"], len(coder.asked), state["evaluations"]) == (4, 12, 12)
    assert state["tree"]["nodes"][1]["attempts"] == 12
    assert state["best"]["score"] == pytest.approx(170)
    assert [len(batch) for batch in evaluator.prepared] == [3, 3, 3, 3], "all of a batch before any is evaluated"


def test_the_calls_of_a_batch_differ_and_say_which_sample_they_ask_for(database: Path) -> None:
    services, _, coder = with_batches(database, scored(100, 90, 110, 120))
    start(compiled(services), budget=4, samples=2)
    assert "This is attempt 1 for this intent, sample 1 of 2:" in coder.prompt(0)
    assert "This is attempt 1 for this intent, sample 2 of 2:" in coder.prompt(1)
    assert "This is attempt 2 for this intent, sample 1 of 2:" in coder.prompt(2)
    assert "# Attempt 1: passed" in coder.prompt(2)
    assert "J 100.0" in coder.prompt(2), "the best of the attempt before"


def test_a_single_sample_is_asked_for_as_ever(database: Path) -> None:
    services, evaluator, coder = with_batches(database, scored(100, 120))
    start(compiled(services), budget=2)
    assert "This is attempt 1 for this intent. Reply with" in coder.prompt(0)
    assert "sample" not in coder.prompt(1)
    assert [len(batch) for batch in evaluator.prepared] == [1, 1]


@pytest.mark.parametrize(("budget", "samples"), [(1, 4), (7, 3), (6, 3)])
def test_exactly_the_budget_is_spent(database: Path, budget: int, samples: int) -> None:
    services, evaluator, coder = with_batches(database, scored(*range(100, 400, 10)))
    state = start(compiled(services), budget=budget, samples=samples)
    assert state["evaluations"] == len(evaluator.evaluated) == len(coder.asked) == budget


def test_twins_within_a_batch_cost_nothing(database: Path) -> None:
    twin = program("J 100")
    services, evaluator, _ = with_batches(database, [twin, twin, program("J 50"), "no program", twin, twin, twin])
    state = start(compiled(services), budget=9, stagnation=1, samples=4)
    assert [event.verdict for event in attempts(services)] == [
        "passed", "duplicate", "passed", "unusable", *["duplicate"] * 4,
    ]  # fmt: skip
    assert (state["evaluations"], len(evaluator.evaluated)) == (2, 2)
    assert [len(batch) for batch in evaluator.prepared] == [2, 0]


@pytest.mark.parametrize("away_at", [1, 2, 3])
def test_parked_within_a_batch_nothing_is_asked_or_measured_twice(database: Path, away_at: int) -> None:
    services, evaluator, coder = with_batches(database, scored(100, 90, 150))
    evaluator.away_at = away_at
    graph = compiled(services)
    state = start(graph, budget=3, samples=3)
    assert state["__interrupt__"][0].value["kind"] == "parked"
    assert (state["evaluations"], state["attempts"]) == (0, 0)
    assert len(evaluator.evaluated) == away_at - 1
    state = resume(graph, True)
    assert state["status"] == "done"
    assert (state["evaluations"], len(coder.asked), len(evaluator.evaluated)) == (3, 3, 3)
    assert [len(batch) for batch in evaluator.prepared] == [3, 3 - (away_at - 1)], "what is known is not prepared"
    assert not state["last"]["reused"], "it was measured for this attempt"


def test_the_samples_of_the_playbook_are_different_variants(database: Path) -> None:
    services = FakeServices(database)
    start(compiled(services), budget=4, samples=2)
    first = attempts(services)[:2]
    assert len({event.program_id for event in first}) == 2
    one_by_one = FakeServices(database.with_name("other.db"))
    start(compiled(one_by_one), budget=4)
    assert [event.program_id for event in attempts(one_by_one)[:2]] == [event.program_id for event in first]
