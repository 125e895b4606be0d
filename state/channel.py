"""Between a SearchTree and the plain channels that LangGraph stores."""

from __future__ import annotations

import hashlib
from typing import Any

from state.search import SearchState, digest
from state.tree import SearchTree, TreeNode


def tree_digest(plain: dict[str, Any]) -> str:
    """Sixteen hex digits of a plain tree; ValueError or TypeError when it has not the shape of one."""
    return _combined([digest(node) for node in plain["nodes"]])


def _combined(digests: list[str]) -> str:
    return hashlib.blake2b("".join(digests).encode(), digest_size=8).hexdigest()


class TreeChannel:
    """One run's way in and out of the channels. It remembers the last tree, so that a step pays for what it changed."""

    def __init__(self) -> None:
        self._nodes: tuple[TreeNode, ...] = ()
        self._digests: list[str] = []
        self._plain: dict[str, Any] = {}
        self._digest = ""

    def read(self, state: SearchState) -> SearchTree:
        """The tree in a state. Raises pydantic.ValidationError when it is not well-formed."""
        if state["tree"] is self._plain:
            return SearchTree.model_construct(nodes=self._nodes)
        return SearchTree.model_validate(state["tree"])

    def write(self, tree: SearchTree) -> SearchState:
        """The change of the tree's channels."""
        count = len(tree.nodes)
        blank = [None] * max(0, count - len(self._nodes))
        nodes: list[Any] = [*self._plain.get("nodes", [])[:count], *blank]
        digests: list[Any] = [*self._digests[:count], *blank]
        known = (*self._nodes[:count], *blank)
        changed = [i for i, (node, before) in enumerate(zip(tree.nodes, known, strict=True)) if node is not before]
        for index in changed:
            nodes[index] = tree.nodes[index].model_dump(mode="json")
            digests[index] = digest(nodes[index])
        self._nodes, self._digests = tree.nodes, digests
        self._plain, self._digest = {"nodes": nodes}, _combined(digests)
        return {"tree": self._plain, "tree_digest": self._digest}

    def intact(self, state: SearchState) -> bool:
        """Whether the tree is as a node left it, and nobody wrote over it."""
        if state["tree"] is self._plain:
            return state["tree_digest"] == self._digest
        try:
            return tree_digest(state["tree"]) == state["tree_digest"]
        except (KeyError, TypeError):
            return False
