"""Waiting for an evaluator that is away."""

from __future__ import annotations

from langgraph.types import interrupt

from state.search import Parked, SearchState


def wait_if_parked(state: SearchState) -> SearchState:
    """Waits (as an interrupt) while the run is parked; then the evaluation is tried again."""
    if state["parked"] is None:
        return {}
    parked = Parked.model_validate(state["parked"])
    interrupt({"kind": "parked", "reason": parked.reason, "run": state["run"]})
    return {"parked": None}


def park(reason: Exception, program: str | None) -> SearchState:
    """The change that makes the next execution of the node wait."""
    return {"parked": Parked(reason=str(reason), program=program).model_dump(mode="json")}
