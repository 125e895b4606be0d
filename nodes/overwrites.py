"""A tree that a person wrote over directly: what they meant, as edits."""

from __future__ import annotations

from typing import Any

from state.archive import Archive
from state.edits import Edit, Insert, Prune, Update, apply
from state.tree import SearchTree, TreeNode, new_tree


def logged_tree(archive: Archive, run: str, branch: str, title: str, end: int | None = None) -> SearchTree:
    """The tree that the recorded log gives."""
    return apply(new_tree(title), archive.events(run, branch, end)).tree


def differences(tree: SearchTree, written: dict[str, Any]) -> tuple[list[Edit], list[str]]:
    """What a person meant by overwriting the tree: edits, and in words what cannot be edited."""
    try:
        other = SearchTree.model_validate(written)
    except ValueError as error:
        return [], [f"the tree that a person wrote is not a tree and was left out: {error}"]
    edits: list[Edit] = []
    refused: list[str] = []
    for node in other.nodes[: len(tree.nodes)]:
        below_pruned = any(other[above.id].status == "pruned" for above in tree.ancestors(node.id))
        edit, reason = _difference(tree[node.id], node, below_pruned)
        edits += [edit] if edit is not None else []
        refused += [reason] if reason is not None else []
    for node in other.nodes[len(tree.nodes) :]:
        edits.append(
            Insert(author="person", parent=node.parent_id or "n0", key=node.id, title=node.intent.title,
                   description=node.intent.description, priority=node.priority, difficulty=node.difficulty,
                   predicted_score=node.predicted_score, confidence=node.confidence, evidence=node.evidence)
        )  # fmt: skip
    missing = [node.id for node in tree.nodes[len(other.nodes) :]]
    if missing:
        refused.append(f"{', '.join(missing)}: nodes are never removed; prune them instead")
    return edits, refused


_EDITABLE = ("priority", "difficulty", "predicted_score", "confidence", "evidence")


def _difference(ours: TreeNode, theirs: TreeNode, below_pruned: bool) -> tuple[Edit | None, str | None]:
    if ours == theirs:
        return None, None
    free = {*_EDITABLE, "intent", "status"}
    changed = sorted(key for key in TreeNode.model_fields if getattr(ours, key) != getattr(theirs, key))
    locked = [key for key in changed if key not in free]
    reason = f"{ours.id}: {', '.join(locked)} cannot be edited; the search alone writes it" if locked else None
    if ours.status != theirs.status and theirs.status == "pruned":
        if below_pruned:
            return None, reason
        return Prune(author="person", node=ours.id, evidence=theirs.evidence or "pruned by a person"), reason
    if ours.status != theirs.status and (ours.status, theirs.status) != ("pruned", "open"):
        return None, f"{ours.id}: {ours.status} cannot be made {theirs.status}"
    values = {key: getattr(theirs, key) for key in _EDITABLE if key in changed}
    if "intent" in changed:
        values |= {"title": theirs.intent.title, "description": theirs.intent.description}
    if not values and ours.status == theirs.status:
        return None, reason
    revive = ours.status != theirs.status
    return Update(author="person", node=ours.id, revive=revive, **values), reason
