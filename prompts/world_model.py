"""What the world model is asked, and what its reply says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from prompts.rendering import SHIPPED, Templates
from prompts.replies import answer, fenced
from state.edits import EDIT, Edit, Rejection
from state.effects import Prompt
from state.search import Best, Outcome
from state.tree import SearchTree, TreeNode
from tasks.task import Task


@dataclass(frozen=True)
class Situation:
    """All that a world-model prompt is made of."""

    task: Task
    hardware: str
    baseline: str
    """One line: the strongest formulation and its latency on each workload."""
    tree: SearchTree
    round: int
    evaluations: int
    budget: int
    best: Best | None
    outcome: Outcome | None
    """The intent that was just closed; None at the start and when the frontier ran empty."""
    detail: str
    """Latencies of the outcome's best program, or the last failure's message."""
    rejected: tuple[str, ...]
    """Edits of the last turn that were refused, each with its reason."""
    words: tuple[str, ...]
    max_difficulty: int = 5
    """Open intents that are harder are not pursued."""
    weakest: str = ""
    """The workloads with the least gain under the best program; empty where `detail` says it."""


def ask(situation: Situation, templates: Templates = SHIPPED) -> Prompt:
    """The prompt that asks for tree edits."""
    s = situation
    outcome = None
    if s.outcome is not None:
        predicted = s.tree[s.outcome.node].predicted_score
        outcome = {**s.outcome.model_dump(), "predicted": predicted, "detail": s.detail}
    return templates.render(
        "world_model.md.j2",
        {
            "task": s.task,
            "hardware": s.hardware,
            "baseline": s.baseline,
            "tree": "\n".join(map(_remembered, s.tree.nodes)),
            "round": s.round,
            "evaluations": s.evaluations,
            "budget": s.budget,
            "max_difficulty": s.max_difficulty,
            "best": None if s.best is None else s.best.model_dump(),
            "weakest": s.weakest,
            "outcome": outcome,
            "begun": len(s.tree.nodes) > 1,
            "rejected": list(s.rejected),
            "words": list(s.words),
        },
    )


def ask_again(errors: tuple[str, ...], templates: Templates = SHIPPED) -> Prompt:
    """The prompt that follows an unusable reply."""
    return templates.render("repair.md.j2", {"errors": list(errors)})


_LINES: dict[str, tuple[TreeNode, str]] = {}
"""By node id the node that was shown last and its line: most of a tree is as it was a turn ago."""


def _remembered(node: TreeNode) -> str:
    known = _LINES.get(node.id)
    if known is not None and known[0] is node:
        return known[1]
    line = _line(node)
    _LINES[node.id] = node, line
    return line


def _line(node: TreeNode) -> str:
    fields: dict[str, Any] = {"id": node.id, "parent": node.parent_id, "status": node.status,
                              "title": node.intent.title}  # fmt: skip
    if node.status == "open":
        fields |= {"V": round(node.priority, 3), "difficulty": node.difficulty}
    if node.status == "closed":
        fields |= {"J": None if node.score is None else round(node.score, 1), "attempts": node.attempts}
    if node.predicted_score is not None:
        fields |= {"forecast": round(node.predicted_score, 1), "confidence": node.confidence}
    if node.evidence:
        fields["evidence"] = node.evidence
    if node.author == "person":
        fields["author"] = "person"
    return json.dumps(fields, ensure_ascii=False)


def refusal(rejection: Rejection) -> str:
    """A refused edit and the reason, in one line."""
    event = rejection.event.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return f"{json.dumps({'kind': rejection.event.kind, **event}, ensure_ascii=False)}: {rejection.reason}"


@dataclass(frozen=True)
class ParsedEdits:
    """The usable edits of a reply, and what was wrong with the rest."""

    edits: tuple[Edit, ...]
    errors: tuple[str, ...]


def parse_edits(reply: str) -> ParsedEdits:
    """The edits in a reply. Never raises: whatever cannot be used is an error in words."""
    text = answer(reply)
    problem = "the reply holds no JSON object" if text else "the reply is empty"
    items: list[object] | None = None
    for candidate in (*reversed([block.text for block in fenced(text)]), text):
        for start in _starts(candidate):
            found = _decoded(candidate[start:])
            if isinstance(found, list):
                items = found
                break
            problem = found
        if items is not None:
            break
    if items is None:
        return ParsedEdits((), (problem,))
    edits: list[Edit] = []
    errors: list[str] = []
    for index, item in enumerate(items):
        try:
            edits.append(_model_edit(item))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            errors.append(f"edits[{index}]: {place + ': ' if place else ''}{first['msg']}")
    return ParsedEdits(tuple(edits), tuple(errors))


def _starts(text: str) -> list[int]:
    """Where the object with the edits may begin."""
    named = [match.start() for match in re.finditer(r'\{\s*"edits"', text)]
    first = text.find("{")
    return named if first < 0 or first in named else [*named, first]


def _decoded(text: str) -> list[object] | str:
    """The list of edits in the JSON object at the start of this text, or what is wrong with it."""
    try:
        data, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        return f"the JSON cannot be read: {error}"
    items = data.get("edits")
    return items if isinstance(items, list) else 'the JSON object has no list "edits"'


def _model_edit(item: object) -> Edit:
    """A model's edit: what only the search or a person may say is dropped."""
    if isinstance(item, dict):
        item = {key: value for key, value in item.items() if key not in ("round", "author", "revive")}
    return EDIT.validate_json(json.dumps(item))
