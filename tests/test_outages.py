"""A device that comes and goes costs waits and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import StatedEvaluator, compiled, edits, insert, program, resume, scripted, start
from tiny_task import write_task

from state.program import Program
from state.settings import Settings
from state.verdict import Crashed
from tasks.errors import WorkFailed
from tasks.evaluator import EvaluatorUnavailable
from tasks.local import LocalEvaluator

TWO = edits(insert("first idea", 0.9), insert("second idea", 0.5))
PROGRAMS = [program(f"J {100 + 7 * index}", f"number {index}") for index in range(12)]


class Flickering(StatedEvaluator):
    """Is away whenever its hardware is asked for the n-th time, for some n."""

    asked = 0
    away_at: frozenset[int] = frozenset()

    @property
    def hardware(self) -> str:  # type: ignore[override]
        self.asked += 1
        if self.asked in self.away_at:
            raise EvaluatorUnavailable("no CUDA device is visible to PyTorch")
        return "a device"


def searched(database: Path, away_at: frozenset[int]) -> tuple[list[Any], int, int]:
    """The event log of a run with such a device, how often it waited, and how often hardware was asked for."""
    services, _, _ = scripted(database, [TWO, edits(), edits(), edits(), edits()], PROGRAMS)
    device = services.evaluator = Flickering(services.task)
    device.away_at = away_at
    graph = compiled(services)
    state, waits = start(graph, budget=5, stagnation=2), 0
    while "__interrupt__" in state:
        (interrupt,) = state["__interrupt__"]
        assert interrupt.value["kind"] == "parked"
        assert "no CUDA device" in interrupt.value["reason"]
        waits += 1
        state = resume(graph, "go on")
    assert state["status"] == "done"
    archive = services("run", Settings()).archive
    return archive.plain_events("run", "main", 0), waits, device.asked


def test_a_device_that_is_away_at_any_moment_changes_nothing_but_the_waits(tmp_path: Path) -> None:
    undisturbed, waits, moments = searched(tmp_path / "0.db", frozenset())
    assert waits == 0
    assert moments > 20
    for moment in range(1, moments + 1):
        log, waits, _ = searched(tmp_path / f"{moment}.db", frozenset({moment}))
        assert waits == 1, moment
        assert log == undisturbed, moment


class Failing:
    """A trusted process on a device that fails under every evaluation, and is away from the n-th start on."""

    pid = None

    def __init__(self, away_from: int) -> None:
        self.loaded = {"hardware": "a device"}
        self.starts, self.away_from = 0, away_from

    def start(self) -> None:
        self.starts += 1
        if self.starts >= self.away_from:
            raise EvaluatorUnavailable("no CUDA device is visible to PyTorch")

    def ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        raise WorkFailed("CUDA error: misaligned address")

    def end(self) -> None:
        pass


def test_a_program_that_fails_a_healthy_device_twice_is_to_blame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator = LocalEvaluator(write_task(tmp_path), device="cuda")
    suspect = Program(language="cpp", source="int x;")
    monkeypatch.setattr(evaluator, "_trusted", Failing(away_from=3))
    with pytest.raises(EvaluatorUnavailable, match="no CUDA device"):
        evaluator.evaluate(suspect)
    monkeypatch.setattr(evaluator, "_trusted", Failing(away_from=99))
    verdict = evaluator.evaluate(suspect)
    assert isinstance(verdict, Crashed)
    assert (verdict.signal, "misaligned address" in verdict.message) == ("harness", True)
    assert verdict.receipt is not None
    evaluator.close()


def test_without_a_gpu_there_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    evaluator = LocalEvaluator(write_task(tmp_path), device="cuda")
    with pytest.raises(EvaluatorUnavailable, match="no CUDA device is visible"):
        evaluator.evaluate(Program(language="cpp", source="int x;"))
    with pytest.raises(EvaluatorUnavailable, match="no CUDA device is visible"):
        _ = evaluator.hardware
    evaluator.close()
