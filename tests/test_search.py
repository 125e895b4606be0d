"""The small decisions of Algorithm 1: what is an improvement, and when a run ends."""

from __future__ import annotations

import math

import pytest

from state.edits import Close, Insert
from state.search import (
    DRY_LIMIT,
    IDLE_FACTOR,
    SearchState,
    budget_left,
    digest,
    improves,
    logged,
    pending,
    why_stopped,
)
from state.settings import Settings


@pytest.mark.parametrize(
    ("score", "noise", "best", "minimum", "expected"),
    [
        (100.0, 0.0, None, 0.02, True),
        (100.0, 0.0, (0.0, 0.0), 0.02, True),
        (0.0, 0.0, None, 0.0, False),
        (-1.0, 0.0, None, 0.0, False),
        (102.0, 0.0, (100.0, 0.0), 0.02, False),
        (102.1, 0.0, (100.0, 0.0), 0.02, True),
        (100.0, 0.0, (100.0, 0.0), 0.0, False),
        (100.1, 0.0, (100.0, 0.0), 0.0, True),
        (105.0, 0.03, (100.0, 0.0), 0.02, False),
        (105.0, 0.0, (100.0, 0.03), 0.02, False),
        (107.0, 0.03, (100.0, 0.03), 0.02, False),
        (109.0, 0.03, (100.0, 0.03), 0.02, True),
        (90.0, 0.0, (100.0, 0.0), 0.0, False),
        (math.nan, 0.0, None, 0.0, False),
        (math.nan, 0.0, (100.0, 0.0), 0.0, False),
    ],
    ids=[
        "anything beats nothing", "anything beats zero", "zero is no result", "nor is less", "a tie at the threshold",
        "beyond the threshold", "equal without a threshold", "more without a threshold", "within its own noise",
        "within the best's noise", "within the noise of both", "beyond the noise of both", "worse",
        "not a number beats nothing", "nor a number",
    ],
)  # fmt: skip
def test_what_is_an_improvement(
    score: float, noise: float, best: tuple[float, float] | None, minimum: float, expected: bool
) -> None:
    assert improves(score, noise, best, minimum) is expected


def state(**changes: object) -> SearchState:
    fresh = {"evaluations": 0, "elapsed_s": 0.0, "asked": {"calls": 0, "tokens": 0}, "idle": 0, "dry": 0, "log": [],
             "event_count": 0}  # fmt: skip
    return SearchState(**{**fresh, **changes})  # type: ignore[typeddict-item]


SETTINGS = Settings(budget=10, stagnation=3, max_minutes=2.0, max_calls=5, max_tokens=100)


@pytest.mark.parametrize(
    ("within", "beyond", "reason"),
    [
        ({"evaluations": 9}, {"evaluations": 10}, "the budget of 10 evaluations is spent"),
        ({"elapsed_s": 119.9}, {"elapsed_s": 120.0}, "the limit of 2 minutes is reached"),
        ({"asked": {"calls": 4, "tokens": 0}}, {"asked": {"calls": 5, "tokens": 0}},
         "the limit of 5 model calls is reached"),
        ({"asked": {"calls": 0, "tokens": 99}}, {"asked": {"calls": 0, "tokens": 100}},
         "the limit of 100 tokens is reached"),
        (
            {"idle": 3 * IDLE_FACTOR - 1},
            {"idle": 3 * IDLE_FACTOR},
            f"{3 * IDLE_FACTOR} attempts in a row brought no new program",
        ),
    ],
    ids=["budget", "minutes", "calls", "tokens", "idle"],
)  # fmt: skip
def test_each_limit_ends_a_run_exactly_when_it_is_reached(
    within: dict[str, object], beyond: dict[str, object], reason: str
) -> None:
    assert budget_left(state(**within), SETTINGS)
    assert not budget_left(state(**beyond), SETTINGS)
    assert why_stopped(state(**beyond), SETTINGS) == reason


def test_without_a_limit_on_minutes_time_does_not_end_a_run() -> None:
    assert budget_left(state(elapsed_s=1e9), Settings())


def test_a_run_that_no_limit_ended_ran_out_of_ideas() -> None:
    assert why_stopped(state(dry=DRY_LIMIT), SETTINGS) == f"the world model had no new intent in {DRY_LIMIT} turns"


def test_the_digest_of_pending_edits_tells_sets_apart() -> None:
    one, other = Insert(parent="n0", title="a", priority=0.5), Insert(parent="n0", title="a", priority=0.6)
    assert pending((one,)).digest == pending((one,)).digest
    assert len({pending(edits).digest for edits in ((), (one,), (other,), (one, other), (other, one))}) == 5


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [1, 2]}) == digest({"b": [1, 2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_logged_events_are_appended_and_counted() -> None:
    first = {"kind": "close", "node": "n1"}
    changes = logged(state(log=[first], event_count=7), (Close(node="n2"), Close(node="n3")))
    assert [event["node"] for event in changes["log"]] == ["n1", "n2", "n3"]
    assert changes["event_count"] == 9
