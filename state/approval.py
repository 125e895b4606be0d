"""The question that a person is asked about tree edits, and what their answer means.

The payload has the shape of a HITLRequest (action_requests, review_configs) and the reply that of a
HITLResponse (decisions), so that Agent Inbox and Agent Chat UI render it; `pending` is the digest of the set.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from state.edits import EDIT, Edit, Insert
from state.search import Pending
from state.tree import SearchTree


class ActionRequest(TypedDict):
    """One edit that waits."""

    name: str
    args: dict[str, Any]
    description: str


class ReviewConfig(TypedDict):
    """What may be decided about an edit."""

    action_name: str
    allowed_decisions: list[str]


class ApprovalRequest(TypedDict):
    """What `approve` interrupts with."""

    kind: Literal["approval"]
    pending: str
    problem: str | None
    """Why the answer before this one was refused."""
    action_requests: list[ActionRequest]
    review_configs: list[ReviewConfig]


class Answer(BaseModel):
    """What is left of the pending edits after a person has spoken."""

    model_config = ConfigDict(frozen=True)

    edits: tuple[Edit, ...]
    refused: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


class _EditedAction(BaseModel):
    name: str | None = None
    args: dict[str, Any]


class _Decision(BaseModel):
    type: Literal["approve", "edit", "reject"]
    edited_action: _EditedAction | None = None
    message: str | None = None


class _Response(BaseModel):
    pending: str | None = None
    decisions: list[_Decision] = Field(min_length=1)


def request(pending: Pending, tree: SearchTree, problem: str | None = None) -> ApprovalRequest:
    """One action per edit, with the reason that the world model gave."""
    return {
        "kind": "approval",
        "pending": pending.digest,
        "problem": problem,
        "action_requests": [
            {"name": edit.kind, "args": _args(edit), "description": describe(edit, tree)} for edit in pending.edits
        ],
        "review_configs": [
            {"action_name": name, "allowed_decisions": ["approve", "edit", "reject"]}
            for name in sorted({edit.kind for edit in pending.edits})
        ],
    }


def describe(edit: Edit, tree: SearchTree) -> str:
    """One line for a person: what the edit does, and why."""
    why = f": {edit.evidence}" if edit.evidence else ""
    if isinstance(edit, Insert):
        return f"insert {edit.title!r} below {_named(tree, edit.parent)} with V {edit.priority:g}{why}"
    if edit.kind == "prune":
        return f"prune {_named(tree, edit.node)}{why}"
    changes = [f"{name} to {value!r}" for name, value in _args(edit).items() if name not in ("node", "evidence")]
    return f"update {_named(tree, edit.node)}: {', '.join(changes) or 'no change'}{why}"


def apply_answer(pending: Pending, reply: object) -> Answer:
    """What a reply makes of the pending edits. ValueError says why it was refused: nothing was applied."""
    try:
        response = _Response.model_validate(reply)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "answer"
        raise ValueError(f"{place}: {first['msg']}") from None
    if response.pending is not None and response.pending != pending.digest:
        raise ValueError(f"stale: it answers the edits {response.pending}, but {pending.digest} are pending now")
    if len(response.decisions) != len(pending.edits):
        raise ValueError(f"{len(response.decisions)} decisions for {len(pending.edits)} edits")
    edits: list[Edit] = []
    refused: list[str] = []
    words: list[str] = []
    for index, (edit, decision) in enumerate(zip(pending.edits, response.decisions, strict=True)):
        if decision.type == "reject":
            refused.append(f"{edit.kind} {_subject(edit)}: a person rejected it")
            if decision.message:
                words.append(f"on your {edit.kind} of {_subject(edit)}: {decision.message}")
        else:
            edits.append(_edited(edit, decision, index) if decision.type == "edit" else edit)
    return Answer(edits=tuple(edits), refused=tuple(refused), words=tuple(words))


def _edited(edit: Edit, decision: _Decision, index: int) -> Edit:
    """The edit with a person's fields over it, as a person's."""
    if decision.edited_action is None:
        raise ValueError(f"decisions.{index}: an edit needs edited_action.args")
    name = decision.edited_action.name or edit.kind
    before = edit.model_dump(mode="json") if name == edit.kind else {}
    try:
        return EDIT.validate_python({**before, **decision.edited_action.args, "kind": name, "author": "person"})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"decisions.{index}: {place}: {first['msg']}") from None


def _args(edit: Edit) -> dict[str, Any]:
    return edit.model_dump(mode="json", exclude_none=True, exclude={"kind", "round", "author", "revive"})


def _subject(edit: Edit) -> str:
    return repr(edit.title) if isinstance(edit, Insert) else edit.node


def _named(tree: SearchTree, node_id: str) -> str:
    return f"{node_id} {tree[node_id].intent.title!r}" if node_id in tree else node_id
