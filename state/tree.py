"""The search tree: intents, how promising each is, and what came of those that were pursued."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Status = Literal["open", "closed", "pruned"]
Author = Literal["model", "person", "search"]

ROOT = "n0"
"""Id of the one root: the specification itself, closed from the start."""


class Intent(BaseModel):
    """An optimisation to try, in words (delta in the paper)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(min_length=1, max_length=200)
    description: str = Field(default="", max_length=4000)


class TreeNode(BaseModel):
    """One intent in the tree, with the best program that it has led to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    parent_id: str | None
    intent: Intent
    priority: float = Field(ge=0, le=1, allow_inf_nan=False)
    """V: how promising the world model thinks this intent is, relative to the others."""
    status: Status = "open"
    program_id: str | None = None
    score: float | None = None
    """J of the best program; None while no attempt has passed."""
    attempts: int = 0
    predicted_score: float | None = None
    """The world model's own forecast of J."""
    confidence: float | None = None
    difficulty: int | None = Field(default=None, ge=1, le=5)
    author: Author = "model"
    evidence: str = ""
    """One line: why the node is here, or why it is ranked as it is."""
    created_round: int = 0
    closed_round: int | None = None


class SearchTree(BaseModel):
    """An immutable tree; the node with id "n<i>" is at index i, and parents come before their children."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nodes: tuple[TreeNode, ...]

    @model_validator(mode="after")
    def _well_formed(self) -> Self:
        if not self.nodes or self.nodes[0].parent_id is not None:
            raise ValueError("the first node must be the root")
        earlier: set[str | None] = set()
        for index, node in enumerate(self.nodes):
            if node.id != f"n{index}":
                raise ValueError(f"node {index} has the id {node.id!r}, expected 'n{index}'")
            if index and node.parent_id not in earlier:
                raise ValueError(f"{node.id}: its parent {node.parent_id!r} does not come before it")
            earlier.add(node.id)
        return self

    def __contains__(self, node_id: str) -> bool:
        return 0 <= index_of(node_id) < len(self.nodes)

    def __getitem__(self, node_id: str) -> TreeNode:
        """The node of this id; KeyError when there is none."""
        if node_id not in self:
            raise KeyError(node_id)
        return self.nodes[index_of(node_id)]

    def children(self, node_id: str) -> tuple[TreeNode, ...]:
        """Direct children, oldest first."""
        return tuple(node for node in self.nodes if node.parent_id == node_id)

    def ancestors(self, node_id: str) -> Iterator[TreeNode]:
        """The parent, its parent and so on up to the root."""
        parent_id = self[node_id].parent_id
        while parent_id is not None:
            node = self[parent_id]
            yield node
            parent_id = node.parent_id

    def depth(self, node_id: str) -> int:
        """Number of edges between the node and the root."""
        return sum(1 for _ in self.ancestors(node_id))

    def frontier(self) -> tuple[TreeNode, ...]:
        """Open nodes that can be pursued now: their parent is closed."""
        return tuple(
            node
            for node in self.nodes
            if node.status == "open" and node.parent_id and self[node.parent_id].status == "closed"
        )

    def source_of(self, node_id: str) -> TreeNode | None:
        """The nearest ancestor that has a program (its program is x_parent), or None."""
        return next((node for node in self.ancestors(node_id) if node.program_id), None)

    def replaced(self, node: TreeNode) -> SearchTree:
        """This tree with the node of the same id exchanged. The caller keeps the tree well-formed."""
        index = index_of(node.id)
        nodes = (*self.nodes[:index], node, *self.nodes[index + 1 :])
        return SearchTree.model_construct(nodes=nodes)

    def appended(self, node: TreeNode) -> SearchTree:
        """This tree with one more node. The caller keeps the tree well-formed."""
        return SearchTree.model_construct(nodes=(*self.nodes, node))


def index_of(node_id: str | None) -> int:
    """Position of a node id in the tree, or -1 when it is not the form "n<i>"."""
    if node_id is None or node_id[:1] != "n" or not node_id[1:10].isdecimal() or len(node_id) > 10:
        return -1
    index = int(node_id[1:])
    return index if node_id == f"n{index}" else -1


def new_tree(title: str) -> SearchTree:
    """A tree that holds nothing but the specification."""
    root = TreeNode(id=ROOT, parent_id=None, intent=Intent(title=title), priority=1.0, status="closed",
                    author="search", closed_round=0)  # fmt: skip
    return SearchTree(nodes=(root,))


def select(tree: SearchTree, max_difficulty: int = 5) -> TreeNode | None:
    """The action to take: argmax V over the frontier (paper, Algorithm 1 line 5); None when it is empty.

    What is harder than `max_difficulty` is passed over (unknown counts as 3). Ties go to the lower difficulty, then the
    shallower, then the older node.
    """
    frontier = [node for node in tree.frontier() if (node.difficulty or 3) <= max_difficulty]
    highest = max((node.priority for node in frontier), default=0.0)
    first = [node for node in frontier if node.priority == highest]
    return min(first, key=lambda node: _rank(tree, node), default=None)


def _rank(tree: SearchTree, node: TreeNode) -> tuple[int, int, int]:
    return (node.difficulty or 3, tree.depth(node.id), index_of(node.id))
