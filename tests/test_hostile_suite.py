"""The suite of hostile programs says of each what is expected, and tells an expected verdict from another."""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_suite import Hostile, Outcome, families, good, parsed, table

from state.verdict import Crashed, Passed, Rejected, WorkloadTiming, WrongResult

LANGUAGES = ("python", "triton", "cuda")


def _hostile(tmp_path: Path, expect: str) -> Hostile:
    path = tmp_path / "cheat.py"
    path.write_text(f"# expect: {expect}\n# It cheats.\n# Fools nobody.\n")
    return parsed(path, "python")


def _passed(speedup: float) -> Passed:
    timing = WorkloadTiming(workload="w", latency_us=1.0, baseline_us=speedup, baseline="eager", noise=0.0)
    return Passed(timings=(timing,), noise=0.0)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_program_says_what_it_does_and_whom_it_fools(language: str) -> None:
    programs = families(language)
    assert programs
    assert [program.family for program in programs if not (program.does and program.fools)] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_honest_programs(language: str) -> None:
    assert len(good(language)) >= 2


@pytest.mark.parametrize("language", ["python", "triton"])
def test_only_the_program_that_is_meant_not_to_parse_does_not(language: str) -> None:
    unparsable = []
    for program in families(language):
        try:
            compile(program.source, program.family, "exec")
        except SyntaxError:
            unparsable.append(program.family)
    assert unparsable == ["syntax_error"]


def test_a_verdict_is_expected_by_kind_and_by_reason_where_one_is_named(tmp_path: Path) -> None:
    program = _hostile(tmp_path, "wrong_result|rejected:left_process")
    assert program.answered_by(WrongResult(reason="nan", workload="w", message=""))
    assert program.answered_by(Rejected(reason="left_process", message=""))
    assert not program.answered_by(Rejected(reason="mutated_input", message=""))
    assert not program.answered_by(Crashed(signal="exit", message=""))
    assert not program.answered_by(_passed(1.0))


def test_a_cheat_without_hold_may_pass_but_not_gain(tmp_path: Path) -> None:
    program = _hostile(tmp_path, "passed:no_gain")
    assert program.answered_by(_passed(1.05))
    assert not program.answered_by(_passed(3.0))


@pytest.mark.parametrize("expect", ["passed", "slow", "", "wrong_result|rejectd"])
def test_a_head_that_expects_nothing_known_is_refused(tmp_path: Path, expect: str) -> None:
    with pytest.raises(ValueError, match=r"cheat\.py"):
        _hostile(tmp_path, expect)


def test_the_table_shows_what_was_not_expected(tmp_path: Path) -> None:
    program = _hostile(tmp_path, "rejected:left_process")
    lines = table([
        Outcome(program, Rejected(reason="left_process", message=""), 0.52),
        Outcome(program, _passed(9.0), 1.0),
    ]).splitlines()  # fmt: skip
    assert lines[2] == "| cheat | rejected | left_process | 0.5 |"
    assert lines[3] == "| cheat | passed | J 900 (NOT EXPECTED: rejected:left_process) | 1.0 |"
