"""The paper's case study (MLA paged decode, section 3.4 and figure 2) as edits, attempts and selections."""

from __future__ import annotations

from state.edits import Attempt, Close, Event, Insert, Prune, Update, apply
from state.tree import SearchTree, TreeNode, new_tree, select


class Search:
    """The tree of a run, its nodes called by their titles."""

    def __init__(self) -> None:
        self.tree: SearchTree = new_tree("MLA paged decode")

    def edit(self, *events: Event) -> None:
        applied = apply(self.tree, list(events))
        assert applied.rejected == ()
        self.tree = applied.tree

    def node(self, title: str) -> TreeNode:
        return [node for node in self.tree.nodes if node.intent.title == title][-1]

    def id(self, title: str) -> str:
        return self.node(title).id

    def selected(self) -> str | None:
        node = select(self.tree)
        return None if node is None else node.intent.title

    def source(self, title: str) -> str | None:
        """The intent whose program this one would start from."""
        node = self.tree.source_of(self.id(title))
        return None if node is None else node.intent.title

    def pursue(self, title: str, score: float, round: int) -> None:
        """What selection picks is this intent; it fails once, reaches the score, and closes."""
        assert self.selected() == title
        node = self.id(title)
        self.edit(
            Attempt(node=node, program_id=f"{title}-1", verdict="wrong_result", round=round),
            Attempt(node=node, program_id=f"{title}-2", verdict="passed", score=score, best=True, round=round),
            Close(node=node, round=round),
        )


def test_the_case_study() -> None:
    search = Search()

    # Round 1: three ideas; sharing the CKV heads looks best.
    search.edit(
        Insert(parent="n0", title="fused_multi_head", priority=0.9, round=1),
        Insert(parent="n0", title="split_k_decoding", priority=0.7, round=1),
        Insert(parent="n0", title="independent_heads", priority=0.3, round=1),
    )
    assert search.source("fused_multi_head") is None, "it starts from the specification"
    search.pursue("fused_multi_head", score=34, round=14)
    assert search.selected() == "split_k_decoding", "before the world model has spoken"

    # Two refinements of the fusion; processing heads one by one is less attractive now.
    fusion = search.id("fused_multi_head")
    search.edit(
        Insert(parent=fusion, title="register_resident_rescaling", priority=0.92, round=14),
        Insert(parent=fusion, title="occupancy_tuned_chunk32", priority=0.85, round=14),
        Update(node=search.id("independent_heads"), priority=0.1, evidence="fusion works", round=14),
    )
    assert search.selected() == "register_resident_rescaling"
    assert search.source("register_resident_rescaling") == "fused_multi_head"

    # By round 34 the dominated branch is pruned; no program was ever written for it.
    search.edit(Prune(node=search.id("independent_heads"), evidence="fusion dominates it", round=34))
    assert search.node("independent_heads").status == "pruned"
    assert search.node("independent_heads").attempts == 0
    search.pursue("register_resident_rescaling", score=40, round=34)
    search.pursue("occupancy_tuned_chunk32", score=38, round=38)
    assert search.selected() == "split_k_decoding", "the last open idea at the root"

    # Round 42: split-K goes as an isolated baseline and comes back on top of the strong fusion kernel.
    search.edit(
        Prune(node=search.id("split_k_decoding"), evidence="ineffective as an isolated baseline", round=42),
        Insert(
            parent=search.id("register_resident_rescaling"), title="low_overhead_split_k", priority=0.8,
            evidence="effective as a composable optimization atop a strong fusion kernel", round=42,
        ),
        Insert(parent=search.id("occupancy_tuned_chunk32"), title="chunk32_vectorized", priority=0.88, round=42),
    )  # fmt: skip
    assert search.node("split_k_decoding").status == "pruned"
    assert search.source("low_overhead_split_k") == "register_resident_rescaling"

    # Rounds 45 to 102: the vectorised chunks, then the deep split-K.
    search.pursue("chunk32_vectorized", score=45, round=45)
    search.edit(
        Insert(parent=search.id("chunk32_vectorized"), title="chunk32_prescale_vectorized", priority=0.9, round=45),
        Insert(parent=search.id("occupancy_tuned_chunk32"), title="chunk64_vectorized", priority=0.5, round=45),
    )
    search.pursue("chunk32_prescale_vectorized", score=48, round=49)
    search.edit(Update(node=search.id("low_overhead_split_k"), priority=0.95, predicted_score=52, round=49))
    search.pursue("low_overhead_split_k", score=52, round=102)
    search.pursue("chunk64_vectorized", score=45, round=103)

    assert search.selected() is None
    closed = [node for node in search.tree.nodes if node.score is not None]
    assert max(closed, key=lambda node: node.score or 0).intent.title == "low_overhead_split_k"
    assert [node.intent.title for node in search.tree.ancestors(search.id("low_overhead_split_k"))] == [
        "register_resident_rescaling",
        "fused_multi_head",
        "MLA paged decode",
    ]


def test_the_same_idea_may_not_come_back_where_it_was_pruned() -> None:
    search = Search()
    search.edit(Insert(parent="n0", title="split_k_decoding", priority=0.7))
    search.edit(Prune(node="n1", evidence="ineffective as an isolated baseline"))
    again = apply(search.tree, [Insert(parent="n0", title="split_k_decoding", priority=0.9)])
    assert "redundant" in again.rejected[0].reason
