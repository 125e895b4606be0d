"""Receipts: their ids, and what is said of a verdict that has none."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from fakes import SCAFFOLD, FakeServices, HashEvaluator, compiled, start
from pydantic import ValidationError
from rich.console import Console
from vouched import VouchedEvaluator, receipt

from graph.cli import main
from graph.report import attempt_line, tree_view
from state.edits import EVENT, apply
from state.search import Best, LastAttempt, SearchState
from state.tree import new_tree
from state.verdict import Passed, Receipt, summary, voucher

FORM = {"task": str(SCAFFOLD), "model": "playbook", "budget": 12}
LISTINGS = (("runs",), ("tree", "last"), ("show", "last"), ("show", "last", "n1"))
COMPARING = ("slower", "faster", "speed-up", "strongest")


def test_a_receipts_id_follows_from_all_that_it_says() -> None:
    one = receipt("p", "t")
    assert one.id == receipt("p", "t").id and len(one.id) == 16
    assert one.id != one.model_copy(update={"seeds": (1, 3)}).id
    assert Receipt.model_validate_json(one.model_dump_json()).id == one.id


def test_a_verdict_without_a_receipt_is_called_unverified() -> None:
    passed = Passed.model_validate({"noise": 0.01, "timings": [{"workload": "w", "latency_us": 50, "baseline_us": 100,
                                    "baseline": "eager", "noise": 0.01}]})  # fmt: skip
    assert voucher(passed) == "unverified" and "unverified" in summary(passed)
    vouched = passed.model_copy(update={"receipt": receipt("p", "t")})
    assert voucher(vouched) == receipt("p", "t").id and "unverified" not in summary(vouched)


def test_a_pass_says_something_of_one_workload_at_least() -> None:
    with pytest.raises(ValidationError, match="timings"):
        Passed(timings=(), noise=0.0)


def printed(*arguments: object) -> str:
    """What a command prints."""
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert not end.value.code
    return out.getvalue()


@pytest.mark.parametrize("listing", LISTINGS)
def test_listings_say_unverified_and_compare_nothing(tmp_path: Path, listing: tuple[str, ...]) -> None:
    services = FakeServices(tmp_path / "k.db")
    start(compiled(services), **FORM)
    text = printed(*listing, "--db", services.database)
    assert "unverified" in text
    assert not [word for word in COMPARING if word in text]


def test_listings_give_the_ids_of_receipts_and_show_prints_them_whole(tmp_path: Path) -> None:
    services = FakeServices(tmp_path / "k.db")
    services.evaluator = VouchedEvaluator(services.task)
    final = start(compiled(services), **FORM)
    vouched = receipt(final["best"]["program"], services.task.hash)
    for listing in (("runs",), ("show", "last"), ("show", "last", "n1")):
        text = printed(*listing, "--db", services.database)
        assert vouched.id in text and "unverified" not in text
    for name in Receipt.model_fields:
        assert name in text
    assert "the strongest PyTorch formulation" in printed("show", "last", "--db", services.database)


def test_the_best_program_comes_with_a_word_on_standard_error_when_nothing_vouches_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for evaluator, said in ((HashEvaluator, True), (VouchedEvaluator, False)):
        services = FakeServices(tmp_path / f"{said}.db")
        services.evaluator = evaluator(services.task)
        start(compiled(services), **FORM)
        assert printed("best", "last", "--db", services.database)
        assert ("unverified: no receipt" in capsys.readouterr().err) == said


def searched() -> SearchState:
    """A state in which n2 was slower than n1, and n3 below it the best."""
    events = [
        EVENT.validate_python(event)
        for number, score in ((1, 150.0), (2, 100.0), (3, 300.0))
        for event in (
            {"kind": "insert", "parent": f"n{number - 1}", "title": f"{WORDS[number]}", "priority": 0.5},
            {"kind": "attempt", "node": f"n{number}", "program_id": f"p{number}", "verdict": "passed",
             "score": score, "best": True},
            {"kind": "close", "node": f"n{number}"},
        )
    ]  # fmt: skip
    applied = apply(new_tree("task"), events)
    assert not applied.rejected
    last = LastAttempt(node="n3", ordinal=2, program="p3", verdict="passed", score=300.0,
                       message="passed, J 300.0 (noise 1.0%)", improved=True)  # fmt: skip
    settings = {"task": "t", "budget": 9, "model": "playbook"}
    return {"tree": applied.tree.model_dump(mode="json"), "action": None, "evaluations": 3,
            "best": Best(node="n3", program="p3", score=300.0, noise=0.01).model_dump(mode="json"),
            "last": last.model_dump(mode="json"), "settings": settings}  # fmt: skip


WORDS = ("", "tile the columns", "repack one operand", "vectorise inner loops")


def without(*programs: str) -> Callable[[str], str]:
    """Vouches for every program but these."""
    return lambda program: "unverified" if program in programs else "0123456789abcdef"


@pytest.mark.parametrize(("unvouched", "called"), [((), True), (("p1",), False), (("p2",), False), (("p3",), True)])
def test_a_step_is_called_slower_only_where_receipts_vouch_for_both_sides(
    unvouched: tuple[str, ...], called: bool
) -> None:
    console = Console(width=150, file=io.StringIO(), record=True)
    console.print(tree_view(searched(), without(*unvouched)))
    text = console.export_text()
    assert ("slower by itself" in text) == called
    assert text.count("unverified") == len(unvouched)


def test_a_line_of_the_log_calls_an_unverified_attempt_unverified_and_not_a_new_best() -> None:
    assert attempt_line(searched(), without()).endswith("passed, J 300.0 (noise 1.0%) *new best*")
    assert attempt_line(searched(), without("p3")).endswith("passed, J 300.0 (noise 1.0%) (unverified)")
