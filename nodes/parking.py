"""Waiting for an evaluator that is away, or for the replies of an operator."""

from __future__ import annotations

from langgraph.types import interrupt

from nodes.models.operator import ReplyAwaited
from nodes.replies import wait_for_replies
from nodes.services import Services
from state.search import Parked, SearchState


def wait_if_parked(state: SearchState, services: Services) -> SearchState:
    """Waits (as an interrupt) while the run is parked; then the evaluation, or the prompt, is tried again."""
    if state["parked"] is None:
        return {}
    parked = Parked.model_validate(state["parked"])
    if parked.prompts:
        wait_for_replies(parked.prompts, services)
    else:
        interrupt({"kind": "parked", "reason": parked.reason, "run": state["run"]})
    return {"parked": None}


def park(reason: Exception, program: str | None) -> SearchState:
    """The change that makes the next execution of the node wait."""
    prompts = reason.prompts if isinstance(reason, ReplyAwaited) else ()
    return {"parked": Parked(reason=str(reason), program=program, prompts=prompts).model_dump(mode="json")}
