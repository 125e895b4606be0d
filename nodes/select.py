"""Phase 1: the action with the highest V."""

from __future__ import annotations

from nodes.approve import person_edits
from nodes.services import Services
from prompts.world_model import refusal
from state.edits import apply
from state.search import DRY_LIMIT, Action, SearchState, budget_left, logged, why_stopped
from state.tree import select as argmax_v


def select(state: SearchState, services: Services) -> SearchState:
    """The action is chosen, or there is none: because the frontier is empty or the budget is spent."""
    events, unreadable = person_edits(state)
    applied = apply(services.trees.read(state), list(events))
    refused = [refusal(rejection) for rejection in applied.rejected]
    changes: SearchState = {
        **services.trees.write(applied.tree),
        **logged({**state, "log": []}, applied.accepted),
        "person_edits": [],
        "rejected": state["rejected"] + unreadable + refused,
        "outcome": None,
        "action": None,
    }
    if not budget_left(state, services.settings):
        return {**changes, "stop_reason": why_stopped(state, services.settings)}
    node = argmax_v(applied.tree, services.settings.max_difficulty)
    if node is None:
        dry = state["dry"] + 1
        reason = why_stopped(state, services.settings) if dry > DRY_LIMIT else None
        return {**changes, "dry": dry, "stop_reason": reason}
    source = applied.tree.source_of(node.id)
    action = Action(
        node=node.id,
        parent_program=None if source is None else source.program_id,
        parent_score=None if source is None else source.score,
    )
    return {**changes, "dry": 0, "round": state["round"] + 1, "action": action.model_dump(mode="json"),
            "last": None}  # fmt: skip
