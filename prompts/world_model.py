"""What the world model is asked, and what its reply says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from prompts.rendering import render
from prompts.replies import answer, fenced
from state.archive import Prompt
from state.edits import EDIT, Edit, Rejection
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


def ask(situation: Situation) -> Prompt:
    """The prompt that asks for tree edits."""
    s = situation
    outcome = None
    if s.outcome is not None:
        predicted = s.tree[s.outcome.node].predicted_score
        outcome = {**s.outcome.model_dump(), "predicted": predicted, "detail": s.detail}
    return render(
        "world_model.md.j2",
        {
            "task": s.task,
            "hardware": s.hardware,
            "baseline": s.baseline,
            "tree": "\n".join(_line(node) for node in s.tree.nodes),
            "round": s.round,
            "evaluations": s.evaluations,
            "budget": s.budget,
            "best": None if s.best is None else s.best.model_dump(),
            "outcome": outcome,
            "begun": len(s.tree.nodes) > 1,
            "rejected": list(s.rejected),
            "words": list(s.words),
        },
    )


def ask_again(errors: tuple[str, ...]) -> Prompt:
    """The prompt that follows an unusable reply."""
    return render("repair.md.j2", {"errors": list(errors)})


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
    candidates = [block.text for block in fenced(text)] or [text]
    data: object = None
    problem = "the reply is empty" if not text else "the reply holds no JSON object"
    for candidate in reversed(candidates):
        start = candidate.find("{")
        if start < 0:
            continue
        try:
            data, _ = json.JSONDecoder().raw_decode(candidate[start:])
            break
        except (json.JSONDecodeError, RecursionError) as error:
            problem = f"the JSON cannot be read: {error}"
    if not isinstance(data, dict):
        return ParsedEdits((), (problem,))
    items = data.get("edits")
    if not isinstance(items, list):
        return ParsedEdits((), ('the JSON object has no list "edits"',))
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


def _model_edit(item: object) -> Edit:
    """A model's edit: what only the search or a person may say is dropped."""
    if isinstance(item, dict):
        item = {key: value for key, value in item.items() if key not in ("round", "author", "revive")}
    return EDIT.validate_python(item)
