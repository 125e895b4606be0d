"""When two intents say the same."""

from __future__ import annotations

import re
from functools import lru_cache

from state.tree import SearchTree, TreeNode


def near_duplicate(tree: SearchTree, title: str, parent_id: str) -> TreeNode | None:
    """A node that says the same; a pruned idea may come back, but not under the parent where it was pruned."""
    words = _words(title)
    for node in tree.nodes[1:]:
        if node.status == "pruned" and node.parent_id != parent_id:
            continue
        if _same(words, _words(node.intent.title)):
            return node
    return None


@lru_cache(maxsize=8192)
def _words(title: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\W_]+", title.casefold())) - {"the", "a", "an", "of", "to", "with", "and"}


def _same(left: frozenset[str], right: frozenset[str]) -> bool:
    """Equal up to one word in ten; numbers (tile 32, tile 64) make a difference of their own."""
    if len(left & right) < 0.9 * len(left | right):
        return False
    return not any(character.isdigit() for word in left ^ right for character in word)
