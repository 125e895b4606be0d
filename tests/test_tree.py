"""The tree itself: what is well-formed, what the frontier is, and which node selection takes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from state.tree import ROOT, Intent, SearchTree, TreeNode, index_of, new_tree, select

QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)

FEW_PRIORITIES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
"""Few values, so that ties are common."""


@st.composite
def trees(draw: st.DrawFn) -> SearchTree:
    """Any well-formed tree, whatever the events that could have led to it."""
    tree = new_tree("specification")
    for index in range(1, draw(st.integers(1, 12))):
        status = draw(st.sampled_from(["open", "open", "closed", "pruned"]))
        passed = status == "closed" and draw(st.booleans())
        tree = tree.appended(
            TreeNode(
                id=f"n{index}",
                parent_id=f"n{draw(st.integers(0, index - 1))}",
                intent=Intent(title=draw(st.text(min_size=1, max_size=8)), description=draw(st.text(max_size=8))),
                priority=draw(FEW_PRIORITIES | st.floats(0, 1)),
                difficulty=draw(st.none() | st.integers(1, 5)),
                status=status,
                program_id=f"program{index}" if passed else None,
                score=draw(st.floats(1, 500)) if passed else None,
                attempts=draw(st.integers(1, 9)) if status == "closed" else 0,
            )
        )
    return tree


@QUIET
@given(trees())
def test_a_tree_survives_json(tree: SearchTree) -> None:
    assert SearchTree.model_validate_json(tree.model_dump_json()) == tree
    assert SearchTree.model_validate(tree.model_dump(mode="json")) == tree


@QUIET
@given(trees())
def test_every_node_reaches_the_root_through_its_ancestors(tree: SearchTree) -> None:
    for node in tree.nodes[1:]:
        line = [ancestor.id for ancestor in tree.ancestors(node.id)]
        assert line[-1] == ROOT
        assert len(line) == len(set(line)) == tree.depth(node.id)
        assert node in tree.children(line[0])


@QUIET
@given(trees())
def test_the_frontier_is_what_is_open_below_a_closed_parent(tree: SearchTree) -> None:
    expected = {n.id for n in tree.nodes[1:] if n.status == "open" and tree[n.parent_id or ""].status == "closed"}
    assert {node.id for node in tree.frontier()} == expected


@QUIET
@given(trees(), st.integers(1, 5))
def test_what_is_too_hard_is_passed_over(tree: SearchTree, most: int) -> None:
    chosen = select(tree, most)
    fitting = [node for node in tree.frontier() if (node.difficulty or 3) <= most]
    assert (chosen is None) == (not fitting)
    if chosen is not None:
        assert chosen.priority == max(node.priority for node in fitting)
        assert chosen in fitting


@QUIET
@given(trees())
def test_selection_takes_the_highest_priority_and_breaks_ties_as_documented(tree: SearchTree) -> None:
    chosen = select(tree)
    if not tree.frontier():
        assert chosen is None
        return
    assert chosen is not None
    assert chosen in tree.frontier()
    assert chosen.priority == max(node.priority for node in tree.frontier())
    tied = [node for node in tree.frontier() if node.priority == chosen.priority]
    easiest = min(node.difficulty or 3 for node in tied)
    tied = [node for node in tied if (node.difficulty or 3) == easiest]
    shallowest = min(tree.depth(node.id) for node in tied)
    tied = [node for node in tied if tree.depth(node.id) == shallowest]
    assert chosen == min(tied, key=lambda node: index_of(node.id))


def _tree(*nodes: dict[str, object]) -> SearchTree:
    tree = new_tree("specification")
    for index, fields in enumerate(nodes, start=1):
        given = {"id": f"n{index}", "parent_id": "n0", "intent": {"title": f"idea {index}"}, "priority": 0.5, **fields}
        tree = tree.appended(TreeNode.model_validate(given))
    return tree


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [
        ([{"priority": 0.4}, {"priority": 0.6}], "n2"),
        ([{"difficulty": 3}, {"difficulty": 2}], "n2"),
        ([{"difficulty": 4}, {}], "n2"),
        ([{}, {"difficulty": 4}], "n1"),
        ([{"status": "closed"}, {"parent_id": "n1"}, {}], "n3"),
        ([{}, {}], "n1"),
        ([{"status": "open", "priority": 0.1}, {"parent_id": "n1", "priority": 1.0}], "n1"),
        ([{"status": "pruned"}, {"parent_id": "n1", "priority": 1.0}], None),
    ],
    ids=["higher V", "easier", "unknown is 3, easier than 4", "unknown is 3", "shallower", "older",
         "a child waits for its parent", "nothing below a pruned node"],
)  # fmt: skip
def test_what_is_selected(nodes: list[dict[str, object]], chosen: str | None) -> None:
    node = select(_tree(*nodes))
    assert (node and node.id) == chosen


def test_a_program_comes_from_the_nearest_ancestor_that_has_one() -> None:
    tree = _tree(
        {"status": "closed", "program_id": "p1", "score": 120.0},
        {"parent_id": "n1", "status": "closed"},
        {"parent_id": "n2"},
        {},
    )
    source = tree.source_of("n3")
    assert source is not None
    assert source.id == "n1"
    assert tree.source_of("n4") is None


LONG = "n" + "9" * 5000
"""More digits than int() reads."""


@pytest.mark.parametrize(
    "node_id", ["", "n", "n-1", "n01", "n1 ", "N1", "x", "n٣", "n²", "n99", LONG], ids=lambda text: repr(text[:9])
)
def test_what_is_not_an_id_is_not_in_the_tree(node_id: str) -> None:
    tree = _tree({}, {}, {}, {})
    assert node_id not in tree
    with pytest.raises(KeyError):
        tree[node_id]


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ([], "the first node must be the root"),
        ([{"id": "n0", "parent_id": "n0"}], "the first node must be the root"),
        ([{"id": "n0", "parent_id": None}, {"id": "n2", "parent_id": "n0"}], "expected 'n1'"),
        ([{"id": "n0", "parent_id": None}, {"id": "n1", "parent_id": "n1"}], "does not come before it"),
        ([{"id": "n0", "parent_id": None}, {"id": "n1", "parent_id": None}], "does not come before it"),
        ([{"id": "n0", "parent_id": None}, {"id": "n1", "parent_id": "n7"}], "does not come before it"),
    ],
    ids=["empty", "no root", "gap in the ids", "its own parent", "two roots", "unknown parent"],
)
def test_a_malformed_tree_is_refused(nodes: list[dict[str, object]], problem: str) -> None:
    written = {"nodes": [{"intent": {"title": "t"}, "priority": 0.5, **node} for node in nodes]}
    with pytest.raises(ValidationError, match=problem):
        SearchTree.model_validate(written)


@pytest.mark.parametrize("priority", [-0.1, 1.1, float("nan"), float("inf")])
def test_no_node_has_a_priority_outside_the_unit_interval(priority: float) -> None:
    with pytest.raises(ValidationError, match="priority"):
        TreeNode(id="n0", parent_id=None, intent=Intent(title="t"), priority=priority)
