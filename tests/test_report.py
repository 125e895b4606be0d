"""What a result looks like with many workloads, and when the best program fails on inputs that the search never saw."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from fakes import compiled, edits, insert, program, scripted, start
from rich.console import Console, RenderableType
from vouched import receipt

from graph.cli import main
from graph.programs import timing_table
from graph.report import baseline_view
from state.verdict import Passed, WorkloadTiming
from tasks.evaluator import BaselineTiming


def verdict(count: int, vouched: bool = True) -> Passed:
    """Gains from 0.5x up, the best workload first."""
    names = {f"w{index:02d}": 10.0 + index for index in reversed(range(count))}
    timings = [
        WorkloadTiming(workload=name, latency_us=20.0, baseline_us=baseline_us, baseline="eager", noise=0.03)
        for name, baseline_us in names.items()
    ]
    return Passed(timings=tuple(timings), noise=0.01, receipt=receipt("p", "t") if vouched else None)


def shown(view: RenderableType, width: int = 120) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(view)
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    return lines


def workloads(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith("│ w")]


@pytest.mark.parametrize("width", [80, 120])
def test_of_many_workloads_a_result_shows_both_ends_and_a_line_on_all(width: int) -> None:
    lines = shown(timing_table(verdict(48), whole=False), width)
    assert workloads(lines) == [f"w{index:02d}" for index in (*range(5), *range(43, 48))]
    assert any("38 more" in line for line in lines)
    said = "Slower than the baseline on 9 of 48 workloads, within noise of it on 3, faster on 36; from 0.50x to 2.85x"
    assert said in " ".join(" ".join(lines).split())
    assert len(workloads(shown(timing_table(verdict(48)), width))) == 48


def test_few_workloads_are_all_shown_and_nothing_is_compared_without_a_receipt() -> None:
    assert len(workloads(shown(timing_table(verdict(12), whole=False)))) == 12
    text = "\n".join(shown(timing_table(verdict(48, vouched=False), whole=False)))
    assert "lower" not in text and "speed-up" not in text and "2.85x" not in text


def test_of_many_workloads_the_baselines_are_summed_up_by_formulation() -> None:
    rows = [
        BaselineTiming(workload=f"w{index}", latency_us={"eager": 30.0 + index, "compiled": 60.0 + 2 * index},
                       strongest="eager", errors={"library": "not installed"})
        for index in range(48)
    ]  # fmt: skip
    lines = shown(baseline_view(rows, whole=False), 80)
    cells = [line.replace("│", " ").split() for line in lines if line.startswith("│")]
    assert cells == [
        ["eager", "48", "1.00x", "its", "latency", "-"], ["compiled", "0", "2.00x", "its", "latency", "-"],
        ["library", "0", "-", "48"],
    ]  # fmt: skip
    assert len(shown(baseline_view(rows))) > 48
    assert "30.0*" in "\n".join(shown(baseline_view(rows[:12], whole=False)))


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of a run whose best program did not compile for the held-out workloads."""
    database = tmp_path_factory.mktemp("failed") / "k.db"
    services, _, _ = scripted(database, [edits(insert("idea", 0.9)), edits()], [program("J 100", "held out: wrong")])
    start(compiled(services), budget=1, task="softmax")
    return database


@pytest.mark.parametrize("arguments", [["show", "last"], ["best", "last"]])
def test_show_and_best_say_that_the_best_program_failed_on_held_out_inputs(failed: Path, arguments: list[str]) -> None:
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors), pytest.raises(SystemExit) as end:
        main([*arguments, "--db", str(failed)])
    assert not end.value.code
    text = out.getvalue() if arguments[0] == "show" else errors.getvalue()
    assert "did not pass on held-out inputs: compile error" in text and "error: not on these" in text
