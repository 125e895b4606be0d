"""Properties of `apply` for any list of events, and the rules of each kind of edit."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from state.edits import EVENT, Attempt, Close, Event, Insert, Prune, Update, apply
from state.tree import SearchTree, new_tree

QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)

NUMBERS = st.floats(0, 1) | st.sampled_from([-1.0, 2.0, math.nan, math.inf, -math.inf, 1e308])
MAYBE = st.none() | NUMBERS
DIFFICULTIES = st.sampled_from([None, -2, 1, 3, 5, 9])
TITLES = st.integers(1, 64).map("tile {}".format) | st.sampled_from(["split K", "the split of K", "", "  ", "\u00fc\n"])
TEXT = st.sampled_from(["", "one line", " spaces ", "\u00fc\n"])
KEYS = st.sampled_from([None, None, "k1", "k2", "n1", "n3", ""])
AUTHORS = st.sampled_from(["model", "person", "search"])
SCORES = st.sampled_from([0.0, 50.0, 120.0, math.nan, math.inf])
NO_IDS = ["", "n", "n-1", "n00", "n99", "root", "k1"]


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    """Valid and invalid events; most name a node that is there by then."""
    made: list[Event] = []
    for _ in range(draw(st.integers(0, 14))):
        inserts = sum(event.kind == "insert" for event in made)
        node = draw(st.integers(0, inserts).map("n{}".format) | st.sampled_from(NO_IDS))
        match draw(st.sampled_from(["insert", "insert", "update", "prune", "attempt", "close"])):
            case "insert":
                event: Event = Insert(
                    parent=node, key=draw(KEYS), title=draw(TITLES), description=draw(TEXT), priority=draw(NUMBERS),
                    predicted_score=draw(MAYBE), confidence=draw(MAYBE), difficulty=draw(DIFFICULTIES),
                    evidence=draw(TEXT), author=draw(AUTHORS), round=3,
                )  # fmt: skip
            case "update":
                event = Update(
                    node=node, priority=draw(MAYBE), title=draw(st.none() | TITLES), predicted_score=draw(MAYBE),
                    confidence=draw(MAYBE), difficulty=draw(DIFFICULTIES), evidence=draw(TEXT),
                    revive=draw(st.booleans()), author=draw(AUTHORS),
                )  # fmt: skip
            case "prune":
                event = Prune(node=node, evidence=draw(TEXT), author=draw(AUTHORS))
            case "attempt":
                event = Attempt(node=node, program_id=draw(st.sampled_from([None, "program"])), verdict="passed",
                                score=draw(SCORES), best=draw(st.booleans()))  # fmt: skip
            case _:
                event = Close(node=node, round=4)
        made.append(event)
    return made


def start() -> SearchTree:
    return new_tree("specification")


@QUIET
@given(events())
def test_the_tree_stays_well_formed(given_events: list[Event]) -> None:
    tree = apply(start(), given_events).tree
    SearchTree.model_validate(tree.model_dump())
    assert [node.id for node in tree.nodes if node.parent_id is None] == ["n0"]
    for node in tree.nodes[1:]:
        assert node.parent_id in tree
        assert [*tree.ancestors(node.id)][-1].id == "n0"


@QUIET
@given(events())
def test_every_number_in_the_tree_is_finite_and_in_its_range(given_events: list[Event]) -> None:
    for node in apply(start(), given_events).tree.nodes:
        assert math.isfinite(node.priority)
        assert 0 <= node.priority <= 1
        assert node.confidence is None or 0 <= node.confidence <= 1
        assert node.difficulty in (None, 1, 2, 3, 4, 5)
        assert node.predicted_score is None or math.isfinite(node.predicted_score)
        assert node.score is None or math.isfinite(node.score)


@QUIET
@given(events())
def test_every_event_is_accepted_or_rejected_with_a_reason(given_events: list[Event]) -> None:
    applied = apply(start(), given_events)
    assert len(applied.accepted) + len(applied.rejected) == len(given_events)
    assert all(rejection.reason for rejection in applied.rejected)
    assert all(rejection.event in given_events for rejection in applied.rejected if rejection.event == rejection.event)


@QUIET
@given(events())
def test_the_accepted_events_give_the_same_tree_again(given_events: list[Event]) -> None:
    applied = apply(start(), given_events)
    again = apply(start(), list(applied.accepted))
    assert again.tree == applied.tree
    assert again.rejected == ()


@QUIET
@given(events())
def test_the_accepted_events_give_the_same_tree_after_json(given_events: list[Event]) -> None:
    applied = apply(start(), given_events)
    stored = [EVENT.dump_json(event) for event in applied.accepted]
    again = apply(start(), [EVENT.validate_json(line) for line in stored])
    assert again.tree == applied.tree
    assert again.rejected == ()


@QUIET
@given(events())
def test_an_evaluated_node_is_never_removed_or_pruned(given_events: list[Event]) -> None:
    tree = start()
    for event in given_events:
        after = apply(tree, [event]).tree
        assert len(after.nodes) >= len(tree.nodes)
        for before, now in zip(tree.nodes, after.nodes, strict=False):
            assert (before.id, before.parent_id) == (now.id, now.parent_id)
            if before.attempts or before.status == "closed":
                assert now.status != "pruned", f"{event} pruned {before}"
                assert now.attempts >= before.attempts
        tree = after


@QUIET
@given(events(), st.integers(0, 25))
def test_events_may_be_applied_in_any_number_of_steps(given_events: list[Event], cut: int) -> None:
    accepted = list(apply(start(), given_events).accepted)
    halfway = apply(start(), accepted[:cut]).tree
    assert apply(halfway, accepted[cut:]).tree == apply(start(), accepted).tree


@QUIET
@given(events(), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_a_priority_that_is_no_number_is_rejected(given_events: list[Event], priority: float) -> None:
    tree = apply(start(), given_events).tree
    edits = [Insert(parent="n0", title="quite another idea", priority=priority), Update(node="n0", priority=priority)]
    applied = apply(tree, list(edits))
    assert applied.tree == tree
    assert "not a finite number" in applied.rejected[0].reason


@pytest.mark.parametrize(("given_priority", "stored"), [(-3.0, 0.0), (0.4, 0.4), (7.0, 1.0)])
def test_a_finite_priority_is_clamped(given_priority: float, stored: float) -> None:
    applied = apply(start(), [Insert(parent="n0", title="a", priority=given_priority)])
    assert applied.tree["n1"].priority == stored
    assert apply(applied.tree, [Update(node="n1", priority=given_priority)]).tree["n1"].priority == stored


def planted() -> SearchTree:
    """n1 with the child n2 and the grandchild n3, all open; n4 closed."""
    applied = apply(
        start(),
        [
            Insert(parent="n0", key="fuse", title="fuse the heads", priority=0.9),
            Insert(parent="fuse", key="keep", title="keep queries in registers", priority=0.8),
            Insert(parent="keep", title="tile 32", priority=0.7),
            Insert(parent="n0", title="split K", priority=0.6),
            Attempt(node="n4", program_id="p4", verdict="passed", score=50.0, best=True),
            Close(node="n4", round=3),
        ],
    )
    assert applied.rejected == ()
    return applied.tree


def reason(tree: SearchTree, *given_events: Event) -> str:
    """Why the last of these events is rejected."""
    applied = apply(tree, list(given_events))
    assert [rejection.event for rejection in applied.rejected] == [given_events[-1]]
    return applied.rejected[0].reason


def test_inserts_of_one_reply_name_each_other_by_key() -> None:
    tree = planted()
    assert [node.parent_id for node in tree.nodes] == [None, "n0", "n1", "n2", "n0"]
    assert "there is no node 'fuse'" in reason(tree, Insert(parent="fuse", title="x", priority=0.1))
    twice = [Insert(parent="n0", key="k", title=title, priority=0.5) for title in ("first", "second")]
    assert "the key 'k' was used before" in reason(tree, *twice)


def test_an_accepted_event_says_what_took_effect() -> None:
    wild = Insert(parent="n0", key="k", title=" a ", priority=7, confidence=-1, difficulty=9)
    first, second = apply(start(), [wild, Insert(parent="k", title="b", priority=0.5)]).accepted
    assert first == Insert(parent="n0", title="a", priority=1.0, confidence=0.0, difficulty=5)
    assert second == Insert(parent="n1", title="b", priority=0.5)


def test_a_child_of_a_rejected_insert_is_rejected_too() -> None:
    applied = apply(
        planted(),
        [
            Insert(parent="n0", key="n5", title="Split K", priority=0.5),
            Insert(parent="n0", key="n6", title="persistent blocks", priority=0.5),
            Insert(parent="n5", title="a child of the first", priority=0.5),
        ],
    )
    assert [rejection.event.kind for rejection in applied.rejected] == ["insert", "insert"]
    assert len(applied.tree.nodes) == 6


def test_pruning_takes_the_open_intents_below_along() -> None:
    tree = apply(planted(), [Prune(node="n1", evidence="no gain")]).tree
    assert [node.status for node in tree.nodes] == ["closed", "pruned", "pruned", "pruned", "closed"]
    assert {tree[node].evidence for node in ("n1", "n2", "n3")} == {"no gain"}
    assert "pruned already" in reason(tree, Prune(node="n2"))
    assert "its parent n2 is pruned" in reason(tree, Insert(parent="n2", title="x", priority=0.1))
    assert "n1 is pruned" in reason(tree, Attempt(node="n1", program_id="p", verdict="passed"))


def test_what_was_evaluated_is_not_pruned() -> None:
    assert "has been evaluated" in reason(planted(), Prune(node="n4"))
    assert "has been evaluated" in reason(planted(), Prune(node="n0"))
    tried = Attempt(node="n1", program_id="p", verdict="crashed")
    assert "has been evaluated" in reason(planted(), tried, Prune(node="n1"))


def test_only_a_person_revives_and_only_from_the_top_down() -> None:
    tree = apply(planted(), [Prune(node="n1")]).tree
    assert "only a person" in reason(tree, Update(node="n1", revive=True))
    assert "its parent n1 is pruned" in reason(tree, Update(node="n2", revive=True, author="person"))
    assert "n4 is closed, not pruned" in reason(tree, Update(node="n4", revive=True, author="person"))
    assert "only open intents" in reason(tree, Update(node="n1", priority=0.5, author="person"))
    revived = apply(tree, [Update(node="n1", revive=True, author="person"), Update(node="n1", priority=1.0)])
    assert revived.rejected == ()
    assert (revived.tree["n1"].status, revived.tree["n1"].priority) == ("open", 1.0)
    assert revived.tree["n2"].status == "pruned"


@pytest.mark.parametrize("title", ["split K", "Split-K", "the split of K", " SPLIT  k. "])
def test_a_near_duplicate_is_redundant(title: str) -> None:
    assert "redundant: n4" in reason(planted(), Insert(parent="n1", title=title, priority=0.5))


@pytest.mark.parametrize("title", ["tile 64", "tile 32 and split K", "tile 32x2", "tile"])
def test_another_number_or_word_is_another_idea(title: str) -> None:
    assert apply(planted(), [Insert(parent="n0", title=title, priority=0.5)]).rejected == ()


def test_in_a_long_title_one_word_in_ten_may_differ_but_no_number() -> None:
    words = (
        "keep one partial sum per lane while each core walks its own rows in blocks sized for first level cache".split()
    )
    tree = apply(planted(), [Insert(parent="n0", title=" ".join([*words, "64"]), priority=0.5)]).tree
    assert "redundant: n5" in reason(tree, Insert(parent="n0", title=" ".join([*words, "64", "then"]), priority=0.5))
    assert apply(tree, [Insert(parent="n0", title=" ".join([*words, "32"]), priority=0.5)]).rejected == ()


def test_an_idea_that_was_pruned_comes_back_under_another_parent_only() -> None:
    tree = apply(planted(), [Prune(node="n3")]).tree
    assert "redundant: n3" in reason(tree, Insert(parent="n2", title="Tile 32", priority=0.5))
    assert apply(tree, [Insert(parent="n4", title="Tile 32", priority=0.5)]).tree["n5"].parent_id == "n4"


def test_an_update_leaves_what_it_does_not_name() -> None:
    tree = apply(planted(), [Update(node="n1", predicted_score=140.0, confidence=3.0, evidence="seen")]).tree
    node = tree["n1"]
    assert (node.priority, node.predicted_score, node.confidence, node.evidence) == (0.9, 140.0, 1.0, "seen")
    assert node.intent.title == "fuse the heads"
    assert "changes nothing" in reason(tree, Update(node="n1"))
    assert "n4 is closed" in reason(tree, Update(node="n4", priority=0.1))


@pytest.mark.parametrize(("title", "description"), [("", ""), ("  ", ""), ("t" * 201, ""), ("t", "d" * 4001)])
def test_an_intent_needs_a_title_of_a_readable_length(title: str, description: str) -> None:
    insert = Insert(parent="n0", title=title, description=description, priority=0.5)
    assert "1 to 200 characters" in reason(planted(), insert)
    assert "1 to 200 characters" in reason(planted(), Update(node="n1", title=title, description=description))


def test_a_best_attempt_needs_a_program() -> None:
    attempt = Attempt(node="n1", program_id=None, verdict="passed", score=1.0, best=True)
    assert "needs a program" in reason(planted(), attempt)


@pytest.mark.parametrize("best", [True, False])
@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_score_that_is_no_number_is_rejected(score: float, best: bool) -> None:
    attempt = Attempt(node="n1", program_id="p", verdict="passed", score=score, best=best)
    assert "finite" in reason(planted(), attempt)


def test_an_evaluated_intent_below_a_pruned_one_stays() -> None:
    """Whether such an attempt or such a prune is refused, nothing that was evaluated ends up pruned."""
    tried = Attempt(node="n2", program_id="p", verdict="passed", score=90.0, best=True)
    tree = apply(planted(), [tried, Prune(node="n1")]).tree
    assert not [node.id for node in tree.nodes if node.attempts and node.status == "pruned"]
