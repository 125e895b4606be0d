"""What a person is asked about tree edits, and what the answer makes of them."""

from __future__ import annotations

import json

import pytest

from state.approval import apply_answer, request
from state.edits import Insert, Prune, Update, apply
from state.search import Pending, pending
from state.tree import SearchTree, new_tree

INSERT = Insert(parent="n1", key="k", title="vectorise", priority=0.8, predicted_score=150.0, evidence="wide loads")
UPDATE = Update(node="n2", priority=0.1, evidence="no gain so far")
PRUNE = Prune(node="n3", evidence="dominated")
PENDING = pending((INSERT, UPDATE, PRUNE))
APPROVE = {"type": "approve"}


def tree() -> SearchTree:
    titles = ("fuse heads", "split K", "one head at a time")
    return apply(new_tree("spec"), [Insert(parent="n0", title=title, priority=0.5) for title in titles]).tree


def edited(name: str | None = None, **args: object) -> dict[str, object]:
    return {"type": "edit", "edited_action": {"args": args} | ({} if name is None else {"name": name})}


def answer(*decisions: object, digest: str | None = PENDING.digest) -> dict[str, object]:
    return {"decisions": list(decisions)} | ({} if digest is None else {"pending": digest})


def test_the_request_has_the_shape_that_agent_inbox_renders() -> None:
    asked = request(PENDING, tree())
    assert json.loads(json.dumps(asked)) == asked
    assert asked == {
        "kind": "approval",
        "pending": PENDING.digest,
        "problem": None,
        "action_requests": [
            {
                "name": "insert",
                "args": {
                    "parent": "n1", "key": "k", "title": "vectorise", "description": "", "priority": 0.8,
                    "predicted_score": 150.0, "evidence": "wide loads",
                },
                "description": "insert 'vectorise' below n1 'fuse heads' with V 0.8: wide loads",
            },
            {
                "name": "update",
                "args": {"node": "n2", "priority": 0.1, "evidence": "no gain so far"},
                "description": "update n2 'split K': priority to 0.1: no gain so far",
            },
            {
                "name": "prune",
                "args": {"node": "n3", "evidence": "dominated"},
                "description": "prune n3 'one head at a time': dominated",
            },
        ],
        "review_configs": [
            {"action_name": name, "allowed_decisions": ["approve", "edit", "reject"]}
            for name in ("insert", "prune", "update")
        ],
    }  # fmt: skip


def test_an_edit_of_a_node_that_is_not_there_can_still_be_asked_about() -> None:
    asked = request(pending((Prune(node="n99"), Insert(parent="k", title="x", priority=0.5))), tree())
    assert [action["description"] for action in asked["action_requests"]] == [
        "prune n99",
        "insert 'x' below k with V 0.5",
    ]


def test_approved_edits_pass_unchanged() -> None:
    result = apply_answer(PENDING, answer(APPROVE, APPROVE, APPROVE))
    assert result.edits == PENDING.edits
    assert (result.refused, result.words) == ((), ())


def test_an_answer_may_leave_the_digest_out() -> None:
    assert apply_answer(PENDING, answer(APPROVE, APPROVE, APPROVE, digest=None)).edits == PENDING.edits


def test_a_rejected_edit_is_left_out_and_its_words_are_kept() -> None:
    rejected = {"type": "reject", "message": "split-K pays off on long rows"}
    result = apply_answer(PENDING, answer(APPROVE, rejected, {"type": "reject"}))
    assert result.edits == (INSERT,)
    assert result.refused == ("update n2: a person rejected it", "prune n3: a person rejected it")
    assert result.words == ("on your update of n2: split-K pays off on long rows",)


def test_an_edited_edit_is_a_persons_with_the_other_fields_kept() -> None:
    result = apply_answer(PENDING, answer(edited(priority=0.2), edited("update", priority=0.9), APPROVE))
    first, second, third = result.edits
    assert first == INSERT.model_copy(update={"priority": 0.2, "author": "person"})
    assert second == UPDATE.model_copy(update={"priority": 0.9, "author": "person"})
    assert third == PRUNE


def test_an_edit_may_become_one_of_another_kind() -> None:
    result = apply_answer(PENDING, answer(APPROVE, APPROVE, edited("update", node="n3", priority=0.05)))
    assert result.edits[2] == Update(node="n3", priority=0.05, author="person")


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (None, "answer: "),
        ("yes", "answer: "),
        ({}, "decisions: Field required"),
        (answer(), "decisions: "),
        (answer(APPROVE, APPROVE), "2 decisions for 3 edits"),
        (answer(APPROVE, APPROVE, APPROVE, APPROVE), "4 decisions for 3 edits"),
        (answer(APPROVE, {"type": "ignore"}, APPROVE), "decisions.1.type: "),
        (answer(APPROVE, APPROVE, APPROVE, digest="0123456789abcdef"), "stale: "),
        (answer({"type": "edit"}, APPROVE, APPROVE), "decisions.0: an edit needs edited_action.args"),
        (answer(edited(priority="high"), APPROVE, APPROVE), "decisions.0: insert.priority: "),
        (answer(APPROVE, edited(V=0.5), APPROVE), "decisions.1: update.V: "),
        (answer(APPROVE, APPROVE, edited("update", priority=0.1)), "decisions.2: update.node: Field required"),
        (answer(APPROVE, APPROVE, edited("delete")), "decisions.2: "),
    ],
    ids=[
        "nothing", "text", "no decisions", "empty", "too few", "too many", "unknown type", "stale", "no args",
        "bad value", "unknown field", "field missing", "unknown kind",
    ],
)  # fmt: skip
def test_an_answer_that_does_not_fit_is_refused_with_the_place(reply: object, problem: str) -> None:
    with pytest.raises(ValueError) as refused:
        apply_answer(PENDING, reply)
    assert str(refused.value).startswith(problem)


def test_the_request_tells_why_the_answer_before_was_refused() -> None:
    assert request(PENDING, tree(), problem="2 decisions for 3 edits")["problem"] == "2 decisions for 3 edits"


def test_pending_edits_survive_the_state() -> None:
    assert Pending.model_validate(PENDING.model_dump(mode="json")) == PENDING
