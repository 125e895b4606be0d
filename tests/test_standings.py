"""Several programs judged side by side: turns, medians, noise, ranks and ties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from fakes import SCAFFOLD
from rich.console import Console, Group
from vouched import receipt

from graph.judging import latencies_views, named_programs, remarks, standings_view
from graph.standings import Judged, judged
from state.program import Program
from state.verdict import CompileError, Crashed, Passed, Verdict, WorkloadTiming, WrongResult, in_us
from tasks.errors import TaskError
from tasks.submissions import read_programs
from tasks.task import load_task

LOADS = ("small", "large")
TASK = load_task(SCAFFOLD)


def program(text: str) -> Program:
    return Program(language="cpp", source=text)


def passed(score: float, noise: float = 0.01, loads: Sequence[str] = LOADS, vouched: bool = True) -> Passed:
    """As fast on every workload, at this J."""
    timings = tuple(
        WorkloadTiming(workload=load, latency_us=100 * 100 / score, baseline_us=100.0, baseline="eager", noise=noise)
        for load in loads
    )
    return Passed(timings=timings, noise=noise, receipt=receipt(f"{score}", "t") if vouched else None)


class Scripted:
    """Gives each program its verdicts in turn and remembers the order in which it was asked."""

    version = hardware = "scripted"

    def __init__(self, verdicts: dict[str, list[Verdict]]) -> None:
        self.verdicts = {name: iter(own) for name, own in verdicts.items()}
        self.asked: list[str] = []
        self.prepared = 0

    def prepare(self, programs: Sequence[Program]) -> None:
        self.prepared = len(programs)

    def evaluate(self, program: Program) -> Verdict:
        self.asked.append(program.source)
        return next(self.verdicts[program.source])


def standings(repeats: int, **verdicts: list[Verdict]) -> tuple[list[Judged], Scripted]:
    evaluator = Scripted(verdicts)
    programs = [(name, program(name)) for name in verdicts]
    return judged(evaluator, programs, LOADS, repeats, lambda turn, name, verdict: None), evaluator  # type: ignore[arg-type]


def test_programs_are_measured_in_turns_and_one_that_fails_no_more() -> None:
    ranked, evaluator = standings(
        3, a=[passed(100), passed(101), passed(102)], b=[CompileError(message="no")], c=[passed(200)] * 3
    )
    assert evaluator.asked == ["a", "b", "c", "c", "a", "a", "c"]
    assert evaluator.prepared == 3
    assert [one.name for one in ranked] == ["c", "a", "b"]
    assert (ranked[1].score, ranked[2].score) == (101, 0)
    assert [len(one.verdicts) for one in ranked] == [3, 3, 1]


def test_a_later_failure_makes_the_program_a_failed_one() -> None:
    wrong = WrongResult(reason="nan", workload="large", message="NaN")
    ranked, _ = standings(3, a=[passed(300), passed(300), wrong], b=[passed(50)] * 3)
    assert [(one.name, one.score, one.correct) for one in ranked] == [("b", 50, 2), ("a", 0, 1)]
    assert ranked[1].failure == wrong and ranked[1].timings == () and ranked[1].latency_us is None


def test_the_noise_holds_the_spread_between_the_repeats() -> None:
    (steady,), _ = standings(4, a=[passed(100, noise=0.02)] * 4)
    assert steady.noise == pytest.approx(0.02 / 2)
    (restless,), _ = standings(2, a=[passed(80, noise=0.02), passed(125, noise=0.02)])
    spread = math.log(125 / 80) / math.sqrt(2)
    assert restless.noise == pytest.approx(math.sqrt((0.02**2 + spread**2) / 2))
    assert restless.timings[0].noise == pytest.approx(restless.noise)
    (once,), _ = standings(1, a=[passed(100, noise=0.03)])
    assert once.noise == pytest.approx(0.03)


def test_latencies_and_scores_are_medians_over_the_repeats() -> None:
    (one,), _ = standings(3, a=[passed(100), passed(400), passed(200)])
    assert one.score == 200
    assert [(t.workload, t.latency_us, t.baseline_us) for t in one.timings] == [("small", 50, 100), ("large", 50, 100)]
    assert one.latency_us == pytest.approx(50)


@pytest.mark.parametrize(("second", "tie"), [(102.0, True), (103.0, False)])
def test_two_tie_when_they_differ_by_less_than_the_noise_of_both(second: float, tie: bool) -> None:
    ranked, _ = standings(1, a=[passed(100, noise=0.01)], b=[passed(second, noise=0.005)])
    assert ranked[0].ties_with(ranked[1]) is ranked[1].ties_with(ranked[0]) is tie
    text = printed(ranked)
    assert ("tie within noise: b cannot be told from a" in text) is tie
    assert ("ties with" in text) is tie


def test_what_nothing_vouches_for_and_what_was_measured_in_part_is_not_ranked() -> None:
    ranked, _ = standings(1, a=[passed(500, vouched=False)], b=[passed(400, loads=["small"])], c=[passed(50)])
    assert [(one.name, one.comparable) for one in ranked] == [("c", True), ("a", False), ("b", False)]
    assert [round(one.score) for one in ranked] == [50, 500, 0]
    text = printed(ranked)
    assert "passed, not measured on large" in text and "unverified programs are not ranked" in text
    assert "b: passed, not measured on large" in text


@pytest.mark.parametrize("width", [80, 120])
def test_the_standings_show_reasons_receipts_and_messages(width: int) -> None:
    ranked, _ = standings(
        2, good=[passed(120)] * 2, bad=[WrongResult(reason="mismatch", workload="large", message="row 7 is off")],
        dead=[Crashed(signal="SIGSEGV", message="it died")], ugly=[CompileError(message="error: line 3")],
    )  # fmt: skip
    text = printed(ranked, width)
    for part in ("120.0 ±0.7%", "2/2", "1/2", "?/2", "0/2", "83.3", "crashed: SIGSEGV", "row 7 is off", "error: line 3",
                 ranked[0].verdicts[0].receipt.id):  # fmt: skip
        assert part in text, part
    assert max(map(len, text.splitlines())) <= width
    assert "[1m" not in text


def test_latencies_stand_beside_the_baseline_by_workload() -> None:
    ranked, _ = standings(1, quick=[passed(200)], failed=[CompileError(message="no")], slow=[passed(50)])
    text = printed(ranked)
    rows = [line.split() for line in text.splitlines() if line.split()[:1] in (["small"], ["large"])]
    assert rows == [[load, "100", "50.0", "2.00x", "200", "0.50x"] for load in LOADS]


@pytest.mark.parametrize("width", [80, 120])
def test_latencies_are_never_cut_whatever_the_names(width: int) -> None:
    loads = [f"{index:08d}-2265-b1f5-8b91-34afbd67f976" for index in range(48)]
    programs = {f"a_program_with_a_long_name_{index}": passed(3 + index, loads=loads) for index in range(5)}
    ranked = [Judged(name, program(name), (verdict,), tuple(loads)) for name, verdict in programs.items()]
    lines = printed(ranked, width).splitlines()
    assert max(map(len, lines)) <= width
    for one in ranked:
        cell = f" {in_us(one.timings[0].latency_us)} {one.timings[0].speedup:.2f}x"
        assert sum(cell in line for line in lines) == 48, cell


def printed(ranked: list[Judged], width: int = 120) -> str:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(Group(*standings_view(ranked, TASK, 1, width), *remarks(ranked), *latencies_views(ranked, width)))
    return capture.get()


def test_programs_are_read_from_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "b.cpp").write_text("int b;")
    (tmp_path / "a.cpp").write_text("int a;")
    (tmp_path / "notes.txt").write_text("none")
    assert [(name, found.source) for name, found in read_programs(tmp_path, TASK)] == [
        ("a.cpp", "int a;"), ("b.cpp", "int b;"),
    ]  # fmt: skip
    assert [name for name, _ in read_programs(tmp_path / "b.cpp", TASK)] == ["b.cpp"]
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.cpp").write_text("int c;")
    named = named_programs([tmp_path, tmp_path / "more", tmp_path / "b.cpp"], TASK)
    assert [name for name, _ in named] == [str(tmp_path / name) for name in ("a.cpp", "b.cpp", "more/a.cpp", "b.cpp")]


@pytest.mark.parametrize(
    ("name", "problem"),
    [("notes.txt", "takes cpp programs"), ("bytes.cpp", "not a text file"), ("gone.cpp", "cannot be read"),
     (".", "holds no program")],
)  # fmt: skip
def test_what_is_no_program_is_refused_by_its_path(tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "notes.txt").write_text("none")
    if name != ".":
        (tmp_path / "bytes.cpp").write_bytes(b"\xff\xfe")
    with pytest.raises(TaskError, match=f"{tmp_path / name}: .*{problem}"):
        read_programs(tmp_path / name, TASK)
