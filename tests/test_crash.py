"""kill -9 at every place where it could matter: after resuming, nothing but the effect in flight was paid twice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

RUNNER = Path(__file__).with_name("crash_run.py")
SHARES = 2
"""Processes that divide the windows between them."""


@pytest.mark.timeout(900)
def test_a_kill_in_any_window_changes_nothing_but_the_effect_in_flight(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shares = [
        subprocess.Popen(
            [sys.executable, str(RUNNER), str(tmp_path / str(share)), str(share), str(SHARES)],
            stdout=subprocess.PIPE, text=True,
        )
        for share in range(SHARES)
    ]  # fmt: skip
    outputs = [share.communicate()[0] for share in shares]
    assert [share.returncode for share in shares] == [0] * SHARES
    found = [json.loads(output) for output in outputs]
    tested = sum((Counter(one["tested"]) for one in found), Counter())
    with capsys.disabled():
        print(f"\nkilled in {tested.total()} windows of {sum(found[0]['passed'].values())} passed: {dict(tested)}")
    assert {name: problem for one in found for name, problem in one["problems"].items()} == {}
    assert tested.total() >= 150
    kinds = {effect.split()[0] for effect in found[0]["effects"]}
    assert kinds == {"model", "baseline", "evaluate", "confirm", "held_out"}
    for place in ("before node", "after node", "before checkpoint", "after checkpoint", "before answer", "sql COMMIT"):
        assert found[0]["passed"][place]


@pytest.mark.timeout(900)
def test_an_operator_is_asked_again_for_nothing_that_was_committed(tmp_path: Path) -> None:
    command = [sys.executable, str(RUNNER), str(tmp_path), "1", "3", "sync", "operator"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    assert ran.returncode == 0
    found = json.loads(ran.stdout)
    assert found["problems"] == {}
    assert sum(found["tested"].values()) >= 80 and found["tested"]["after model call"] >= 5
