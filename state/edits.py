"""The five events that change a tree, and the pure function that applies them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from state.similarity import near_duplicate
from state.tree import Author, Intent, SearchTree, TreeNode


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    round: int = 0
    author: Author = "model"


Difficulty = Annotated[int, Field(ge=-1000, le=1000)]
"""Clamped to 1..5; what is beyond these bounds no checkpoint could hold."""


class Insert(_Event):
    """A new open intent."""

    kind: Literal["insert"] = "insert"
    parent: str
    """A node's id, or the key of an Insert earlier in the same reply."""
    key: str | None = None
    """A temporary name by which later Inserts of the same reply can call this node their parent."""
    title: str
    description: str = ""
    priority: float
    predicted_score: float | None = None
    confidence: float | None = None
    difficulty: Difficulty | None = None
    evidence: str = ""


class Update(_Event):
    """Other beliefs about an open intent; None leaves a field as it is."""

    kind: Literal["update"] = "update"
    node: str
    priority: float | None = None
    title: str | None = None
    description: str | None = None
    predicted_score: float | None = None
    confidence: float | None = None
    difficulty: Difficulty | None = None
    evidence: str = ""
    revive: bool = False
    """A pruned node is opened again (a person's word only)."""


class Prune(_Event):
    """An open intent, and the open intents below it, will not be pursued."""

    kind: Literal["prune"] = "prune"
    node: str
    evidence: str = ""


class Attempt(_Event):
    """One program was tried for an intent."""

    kind: Literal["attempt"] = "attempt"
    author: Author = "search"
    node: str
    program_id: str | None
    """None when the reply held no usable program."""
    verdict: str
    """Kind of the verdict, "duplicate" or "unusable"."""
    score: float = 0.0
    best: bool = False
    """It is now the best program of its intent."""


class Close(_Event):
    """An intent has been pursued until it stagnated or the budget ended."""

    kind: Literal["close"] = "close"
    author: Author = "search"
    node: str


Edit = Annotated[Insert | Update | Prune, Field(discriminator="kind")]
Event = Annotated[Insert | Update | Prune | Attempt | Close, Field(discriminator="kind")]
EDIT: TypeAdapter[Edit] = TypeAdapter(Edit)
EVENT: TypeAdapter[Event] = TypeAdapter(Event)


class Rejection(BaseModel):
    """An event that was not applied, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event: Event
    reason: str


@dataclass(frozen=True)
class Applied:
    """What became of a list of events."""

    tree: SearchTree
    accepted: tuple[Event, ...]
    """The applied events as they took effect: keys resolved, V clamped. Applying them again gives `tree`."""
    rejected: tuple[Rejection, ...]


class _Refused(Exception):
    """Internal to `apply`: this event cannot be applied."""


def apply(tree: SearchTree, events: list[Event]) -> Applied:
    """The tree after these events, in order; an event that cannot be applied is left out with its reason."""
    keys: dict[str, str | None] = {}
    accepted: list[Event] = []
    rejected: list[Rejection] = []
    for event in events:
        try:
            tree, effective = _apply_one(tree, event, keys)
        except _Refused as refusal:
            rejected.append(Rejection(event=event, reason=str(refusal)))
            if isinstance(event, Insert) and event.key is not None:
                keys.setdefault(event.key, None)
        else:
            accepted.append(effective)
    return Applied(tree=tree, accepted=tuple(accepted), rejected=tuple(rejected))


def _apply_one(tree: SearchTree, event: Event, keys: dict[str, str | None]) -> tuple[SearchTree, Event]:
    match event:
        case Insert():
            return _insert(tree, event, keys)
        case Update():
            return _update(tree, event)
        case Prune():
            return _prune(tree, event)
        case Attempt():
            return _attempt(tree, event)
        case Close():
            node = _existing(tree, event.node)
            if node.status != "open":
                raise _Refused(f"{node.id} is {node.status}, not open")
            closed = node.model_copy(update={"status": "closed", "closed_round": event.round})
            return tree.replaced(closed), event


def _insert(tree: SearchTree, event: Insert, keys: dict[str, str | None]) -> tuple[SearchTree, Event]:
    parent_id = keys.get(event.parent, event.parent)
    if parent_id is None:
        raise _Refused(f"its parent {event.parent!r} was refused")
    parent = _existing(tree, parent_id)
    if parent.status == "pruned":
        raise _Refused(f"its parent {parent.id} is pruned")
    title = event.title.strip()
    if not title or len(title) > 200 or len(event.description) > 4000:
        raise _Refused("the title must have 1 to 200 characters and the description at most 4000")
    twin = near_duplicate(tree, title, parent.id)
    if twin is not None:
        raise _Refused(f"redundant: {twin.id} ({twin.intent.title!r}, {twin.status}) already says this")
    if event.key is not None and event.key in keys:
        raise _Refused(f"the key {event.key!r} was used before in this reply")
    if event.key is not None and event.key in tree:
        raise _Refused(f"the key {event.key!r} is the id of a node")
    priority, predicted = _priority(event.priority), _finite(event.predicted_score, "predicted_score")
    node = TreeNode(
        id=f"n{len(tree.nodes)}", parent_id=parent.id, priority=priority, predicted_score=predicted,
        intent=Intent(title=title, description=event.description.strip()), author=event.author,
        confidence=_confidence(event.confidence), difficulty=_difficulty(event.difficulty),
        evidence=event.evidence, created_round=event.round,
    )  # fmt: skip
    if event.key is not None:
        keys[event.key] = node.id
    effective = event.model_copy(
        update={"parent": parent.id, "priority": priority, "title": title, "key": None,
                "confidence": node.confidence, "difficulty": node.difficulty}
    )  # fmt: skip
    return tree.appended(node), effective


def _update(tree: SearchTree, event: Update) -> tuple[SearchTree, Event]:
    node = _existing(tree, event.node)
    if event.revive:
        node = _revived(tree, node, event.author)
    if node.status != "open":
        raise _Refused(f"{node.id} is {node.status}; only open intents can be updated")
    changes: dict[str, object] = {}
    if event.priority is not None:
        changes["priority"] = _priority(event.priority)
    if event.predicted_score is not None:
        changes["predicted_score"] = _finite(event.predicted_score, "predicted_score")
    if event.confidence is not None:
        changes["confidence"] = _confidence(event.confidence)
    if event.difficulty is not None:
        changes["difficulty"] = _difficulty(event.difficulty)
    if event.evidence:
        changes["evidence"] = event.evidence
    if event.title is not None or event.description is not None:
        changes["intent"] = _reworded(tree, node, event)
    if not changes and not event.revive:
        raise _Refused("it changes nothing")
    effective = event.model_copy(
        update={key: value for key, value in changes.items() if key in ("priority", "confidence", "difficulty")}
    )
    return tree.replaced(node.model_copy(update=changes)), effective


def _reworded(tree: SearchTree, node: TreeNode, event: Update) -> Intent:
    title = node.intent.title if event.title is None else event.title.strip()
    description = node.intent.description if event.description is None else event.description.strip()
    if not title or len(title) > 200 or len(description) > 4000:
        raise _Refused("the title must have 1 to 200 characters and the description at most 4000")
    return Intent(title=title, description=description)


def _revived(tree: SearchTree, node: TreeNode, author: Author) -> TreeNode:
    if author != "person":
        raise _Refused("only a person revives a pruned intent; insert it elsewhere instead")
    if node.status != "pruned":
        raise _Refused(f"{node.id} is {node.status}, not pruned")
    if node.parent_id is not None and tree[node.parent_id].status == "pruned":
        raise _Refused(f"its parent {node.parent_id} is pruned")
    return node.model_copy(update={"status": "open"})


def _prune(tree: SearchTree, event: Prune) -> tuple[SearchTree, Event]:
    node = _existing(tree, event.node)
    if node.status == "closed" or node.attempts:
        raise _Refused(f"{node.id} has been evaluated; what was learned stays in the tree")
    if node.status == "pruned":
        raise _Refused(f"{node.id} is pruned already")
    doomed = {node.id}
    for other in tree.nodes:
        if other.parent_id in doomed and other.status == "open":
            doomed.add(other.id)
    for node_id in doomed:
        pruned = tree[node_id].model_copy(update={"status": "pruned", "evidence": event.evidence})
        tree = tree.replaced(pruned)
    return tree, event


def _attempt(tree: SearchTree, event: Attempt) -> tuple[SearchTree, Event]:
    node = _existing(tree, event.node)
    if node.status == "pruned":
        raise _Refused(f"{node.id} is pruned")
    if node.parent_id is not None and tree[node.parent_id].status != "closed":
        raise _Refused(f"its parent {node.parent_id} is not closed")
    _finite(event.score, "score")
    changes: dict[str, object] = {"attempts": node.attempts + 1}
    if event.best:
        if event.program_id is None:
            raise _Refused("a best attempt needs a program")
        changes |= {"program_id": event.program_id, "score": event.score}
    return tree.replaced(node.model_copy(update=changes)), event


def _existing(tree: SearchTree, node_id: str) -> TreeNode:
    if node_id not in tree:
        raise _Refused(f"there is no node {node_id!r}")
    return tree[node_id]


def _finite(value: float | None, name: str) -> float | None:
    if value is not None and not math.isfinite(value):
        raise _Refused(f"{name} is {value}, not a finite number")
    return value


def _priority(value: float) -> float:
    _finite(value, "priority")
    return min(1.0, max(0.0, value))


def _confidence(value: float | None) -> float | None:
    return None if _finite(value, "confidence") is None else min(1.0, max(0.0, float(value or 0)))


def _difficulty(value: int | None) -> int | None:
    return None if value is None else min(5, max(1, value))
