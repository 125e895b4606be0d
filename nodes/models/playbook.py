"""A chat model without a language model: it reads the same messages as any other and looks answers up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from prompts.replies import fenced
from tasks.playbook import Params, Playbook, PlaybookIntent, Rule

HEADER = "playbook: "
"""Starts a program's first comment: the intent and the parameters that it was rendered with, as JSON."""
_HEADER = re.compile(rf"^(?://|#) {HEADER}(.*)$", re.MULTILINE)

_TREE = re.compile(r"^# The tree$", re.MULTILINE)


class PlaybookModel(BaseChatModel):
    """Plays both roles from a task's playbook. Deterministic: equal messages give equal replies."""

    playbook: Playbook

    @property
    def _llm_type(self) -> str:
        return "playbook"

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any,
    ) -> ChatResult:  # fmt: skip
        text = messages[0].text
        reply = _Planner(self.playbook, text).reply() if _TREE.search(text) else _program(self.playbook, text)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply))])


class _Planner:
    """The world model's part: what the tree in the prompt calls for."""

    def __init__(self, book: Playbook, prompt: str) -> None:
        self.book = book
        found = _TREE.search(prompt)
        tree = prompt[found.start() :] if found else ""
        self.nodes: list[dict[str, Any]] = [json.loads(line) for line in fenced(tree)[0].text.splitlines()]
        closed = re.search(r"^(n\d+) was closed\.", prompt, re.MULTILINE)
        self.closed = closed[1] if closed else None
        self.by_id = {node["id"]: node for node in self.nodes}

    def reply(self) -> str:
        """Edits as JSON: new intents whose prerequisite is met, and what the rules say of the others."""
        edits = self._inserts()
        node = self.by_id.get(self.closed or "")
        if node is not None:
            for rule in self._rules(node):
                edits += self._reactions(rule)
        return json.dumps({"edits": edits}, indent=1)

    def _intent(self, node: dict[str, Any]) -> PlaybookIntent | None:
        return self.book.by_title(node["title"])

    def _node(self, key: str) -> dict[str, Any] | None:
        return next((n for n in self.nodes if (i := self._intent(n)) and i.key == key), None)

    def _inserts(self) -> list[dict[str, Any]]:
        priorities = {intent.key: intent.priority for intent in self.book.intents}
        pruned: dict[str, str] = {}
        reasons: dict[str, str] = {}
        closed = [node for node in self.nodes[1:] if node["status"] == "closed"]
        for node in sorted(closed, key=lambda item: item["id"] == self.closed):
            for rule in self._rules(node):
                priorities |= rule.set
                reasons |= dict.fromkeys(rule.set, rule.reason)
                pruned |= dict.fromkeys(rule.prune, rule.reason)
        edits = []
        for intent in self.book.intents:
            parent = self._parent(intent)
            if parent is not None and self._node(intent.key) is None and intent.key not in pruned:
                edits.append(
                    {"kind": "insert", "parent": parent["id"], "key": intent.key, "title": intent.title,
                     "description": intent.description, "priority": priorities[intent.key],
                     "predicted_score": intent.forecast, "confidence": intent.confidence,
                     "difficulty": intent.difficulty, "evidence": reasons.get(intent.key, "")}
                )  # fmt: skip
        return edits

    def _parent(self, intent: PlaybookIntent) -> dict[str, Any] | None:
        """The node to insert it under: the root, or the closed node of its prerequisite once that passed."""
        if intent.requires is None:
            return self.nodes[0]
        node = self._node(intent.requires)
        return node if node is not None and node.get("J") is not None else None

    def _rules(self, node: dict[str, Any]) -> list[Rule]:
        intent = self._intent(node)
        if intent is None:
            return []
        score, before = node.get("J"), self._score_before(node)
        outcome = "failed" if score is None else "improved" if score > before else "not_improved"
        return [rule for rule in self.book.rules if rule.after == intent.key and rule.when in ("always", outcome)]

    def _score_before(self, node: dict[str, Any]) -> float:
        parent = self.by_id.get(node["parent"] or "")
        while parent is not None:
            if parent.get("J") is not None:
                return float(parent["J"])
            parent = self.by_id.get(parent["parent"] or "")
        return 0.0

    def _reactions(self, rule: Rule) -> list[dict[str, Any]]:
        edits: list[dict[str, Any]] = []
        for key, priority in rule.set.items():
            node = self._node(key)
            if node is not None and node["status"] == "open" and node["V"] != priority:
                edits.append({"kind": "update", "node": node["id"], "priority": priority, "evidence": rule.reason})
        for key in rule.prune:
            node = self._node(key)
            if node is not None and node["status"] == "open":
                edits.append({"kind": "prune", "node": node["id"], "evidence": rule.reason})
        return edits


def _program(book: Playbook, prompt: str) -> str:
    """The coder's part: the intent's template with the parameters of the program that it starts from."""
    title = _section(prompt, "The intent").splitlines()[0]
    intent = book.by_title(title)
    if intent is None:
        return f"The playbook holds no program for the intent {title!r}."
    params, source = book.program(intent, _inherited(prompt), _variant(prompt))
    suffix = Path(intent.template.removesuffix(".j2")).suffix
    comment = "#" if suffix == ".py" else "//"
    header = f"{comment} {HEADER}{json.dumps({'intent': intent.key, 'params': params})}"
    return f"From the playbook, for the intent {title!r}.\n\n```{suffix[1:]}\n{header}\n{source.rstrip()}\n```\n"


def _variant(prompt: str) -> int:
    """Counts the programs that were asked for, 1 for the intent's first; each sample of an attempt counts."""
    asked = re.findall(r"This is attempt (\d+) for this intent(?:, sample (\d+) of (\d+))?", prompt)
    attempt, sample, samples = (int(number or 1) for number in asked[-1])
    return (attempt - 1) * samples + sample


def _section(prompt: str, heading: str) -> str:
    """The text between a heading that starts with these words and the next heading; empty when absent."""
    found = re.search(rf"^# {re.escape(heading)}[^\n]*\n+(.*?)(?=^# |\Z)", prompt, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def _inherited(prompt: str) -> Params:
    """The parameters of the program to start from; none when there is no such program or it is no playbook's."""
    heading = re.search(r"^# The program to start from", prompt, re.MULTILINE)
    header = heading and _HEADER.search(fenced(prompt[heading.end() :])[0].text)
    params: Params = json.loads(header[1])["params"] if header else {}
    return params
