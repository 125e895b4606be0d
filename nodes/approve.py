"""A person's say over the tree edits, and their application."""

from __future__ import annotations

from langgraph.types import interrupt
from pydantic import ValidationError

from nodes.services import Services
from prompts.world_model import refusal
from state.approval import Answer, apply_answer, request
from state.edits import EDIT, Edit, Event, apply
from state.search import Pending, SearchState, logged
from state.settings import Approval
from state.tree import SearchTree


def approve(state: SearchState, services: Services) -> SearchState:
    """The pending edits that nobody refused are in the tree; each refused one is reported with its reason."""
    pending = None if state["pending"] is None else Pending.model_validate(state["pending"])
    tree = services.trees.read(state)
    answer = Answer(edits=() if pending is None else pending.edits)
    if pending is not None and needs_approval(pending, services.settings.approve):
        answer = _asked(pending, tree)
    events, unreadable = person_edits(state)
    stamped: list[Event] = [edit.model_copy(update={"round": state["round"]}) for edit in (*answer.edits, *events)]
    applied = apply(tree, stamped)
    refused = [refusal(rejection) for rejection in applied.rejected]
    return {
        **services.trees.write(applied.tree),
        **logged(state, applied.accepted),
        "pending": None,
        "person_edits": [],
        "rejected": state["rejected"] + list(answer.refused) + unreadable + refused,
        "words": state["words"] + list(answer.words),
    }


def needs_approval(pending: Pending, policy: Approval) -> bool:
    """Whether these edits wait for a person under this policy."""
    if policy == "prunes":
        return any(edit.kind == "prune" for edit in pending.edits)
    return policy == "edits" and bool(pending.edits)


def _asked(pending: Pending, tree: SearchTree) -> Answer:
    """A person's answer; one that does not fit is asked for again with what is wrong with it."""
    problem: str | None = None
    while True:
        reply = interrupt(request(pending, tree, problem))
        try:
            return apply_answer(pending, reply)
        except ValueError as error:
            problem = str(error)


def person_edits(state: SearchState) -> tuple[list[Edit], list[str]]:
    """The edits in the `person_edits` channel, marked as a person's; and in words what cannot be read."""
    edits: list[Edit] = []
    unreadable: list[str] = []
    written: object = state["person_edits"]
    if not isinstance(written, list):
        return [], [f"person_edits was {written!r}, not a list of edits"]
    for item in written:
        try:
            edit = EDIT.validate_python(item)
        except ValidationError as error:
            unreadable.append(f"a person's edit {item!r} cannot be read: {error.errors()[0]['msg']}")
        else:
            edits.append(edit.model_copy(update={"author": "person", "round": state["round"]}))
    return edits, unreadable
