"""Phase 3: the action is closed and the world model learns from it."""

from __future__ import annotations

from nodes.models.operator import ReplyAwaited
from nodes.parking import park, wait_if_parked
from nodes.services import Services
from nodes.turn import world_model_turn
from state.edits import Close, apply
from state.search import Action, Outcome, SearchState, budget_left, logged
from tasks.evaluator import EvaluatorUnavailable


def co_evolve(state: SearchState, services: Services) -> SearchState:
    """The action's node is closed; while budget is left, the world model's edits are pending.

    It waits for an evaluator that cannot say on what hardware it runs, and for an operator's reply.
    """
    waited = wait_if_parked(state, services)
    changes = waited | _closed(state, services) if state["action"] is not None else waited
    state = {**state, **changes}
    if not budget_left(state, services.settings):
        return {**changes, "repair": None, "pending": None}
    try:
        return {**changes, **world_model_turn(state, services, "co_evolve")}
    except (EvaluatorUnavailable, ReplyAwaited) as reason:
        return {**changes, **park(reason, None)}


def _closed(state: SearchState, services: Services) -> SearchState:
    action = Action.model_validate(state["action"])
    applied = apply(services.trees.read(state), [Close(round=state["round"], node=action.node)])
    outcome = Outcome(
        node=action.node,
        program=action.program,
        score=action.score if action.program is not None else None,
        parent_score=action.parent_score,
        verdicts=action.verdicts,
    )
    return {
        **services.trees.write(applied.tree),
        **logged(state, applied.accepted),
        "action": None,
        "outcome": outcome.model_dump(mode="json"),
    }
