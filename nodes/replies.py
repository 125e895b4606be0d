"""How an operator is asked for replies, and how they come into the archive."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.types import interrupt

from nodes.models.operator import OPERATOR
from nodes.services import Services
from prompts.programs import Unusable, parse_program
from prompts.world_model import parse_edits
from state.archive import Archive
from state.effects import Prompt, Reply
from state.search import AwaitedPrompt, Parked, SearchState
from tasks.task import Task

_WANTED = {
    "coder": "the complete program in one fenced code block",
    "world_model": 'one JSON object {"edits": [...]}',
}
"""What a reply of each role holds; the prompt says it in full."""


def wait_for_replies(prompts: Sequence[AwaitedPrompt], services: Services) -> None:
    """Every prompt has a reply in the archive; waits (as an interrupt) for those that had none.

    What does not fit is asked for again with what was wrong; replies that fitted are kept until all are there.
    All are committed together before the node goes on.
    """
    missing = [prompt for prompt in prompts if not services.archive.has_reply(prompt.key)]
    given: dict[str, str] = {}
    problem: str | None = None
    while awaited := [prompt for prompt in missing if prompt.id not in given]:
        fitting, problem = fitted(interrupt(request(services.run, awaited, problem)), awaited)
        given |= fitting
    with services.archive.transaction():
        for prompt in missing:
            asked = Prompt(template=prompt.template, variables=prompt.variables, text=prompt.text)
            reply = Reply(text=given[prompt.id].encode(errors="replace").decode(), model=OPERATOR)
            services.archive.keep_reply(prompt.key, asked, reply, 0.0)


def request(run: str, prompts: Sequence[AwaitedPrompt], problem: str | None = None) -> dict[str, Any]:
    """What the node interrupts with."""
    ids = ", ".join(f'"{prompt.id}": "the reply"' for prompt in prompts)
    how = f"Resume with {{{ids}}}: under each id the whole text of the reply"
    how += ", or with the reply alone as a string." if len(prompts) == 1 else ", all at once."
    return {
        "kind": "prompts",
        "run": run,
        "how": f"The model is an operator: you answer. {how}",
        "problem": problem,
        "prompts": [
            {"id": prompt.id, "role": prompt.key.role, "format": _WANTED[prompt.key.role], "text": prompt.text}
            for prompt in prompts
        ],
    }


def fitted(value: Any, prompts: Sequence[AwaitedPrompt]) -> tuple[dict[str, str], str | None]:
    """The replies by prompt id that a resume value holds, and in words what of it does not fit.

    A form that reads JSON makes an object of the world model's reply: it is a reply as well as its text.
    """
    ids = [prompt.id for prompt in prompts]
    alone = _text(value) if len(ids) == 1 else None
    if alone is not None and (isinstance(value, str) or ids[0] not in value):
        return {ids[0]: alone}, None
    if not isinstance(value, Mapping):
        kind = type(value).__name__
        what = "empty" if value == "" else f"a {kind}"
        return {}, f"the value was {what}, not an object from prompt ids to replies; nothing was taken from it"
    texts = {name: _text(value[name]) for name in ids if name in value}
    given = {name: text for name, text in texts.items() if text is not None}
    problems = [f"no prompt with the id {name!r} waits" for name in value if name not in ids]
    problems += [f"the reply to {name} was no text" for name in ids if name in value and name not in given]
    problems += [f"the reply to {name} is missing" for name in ids if name not in value]
    return given, "; ".join(problems) or None


def _text(value: Any) -> str | None:
    """A reply as text; None when the value is none, or blank."""
    if isinstance(value, Mapping) and "edits" in value:
        return json.dumps(value)
    return value if isinstance(value, str) and value.strip() else None


def awaited_prompts(state: SearchState, archive: Archive) -> tuple[AwaitedPrompt, ...]:
    """The prompts of a stopped run that have no reply yet."""
    parked = state.get("parked")
    prompts = () if parked is None else Parked.model_validate(parked).prompts
    return tuple(prompt for prompt in prompts if not archive.has_reply(prompt.key))


def problems_of(reply: str, prompt: AwaitedPrompt, task: Task) -> tuple[str, ...]:
    """Why a reply cannot be used, or not wholly, in the words that a model is told; empty when it can."""
    if prompt.key.role == "world_model":
        return parse_edits(reply).errors
    program = parse_program(reply, task, task.languages[0])
    return (program.reason,) if isinstance(program, Unusable) else ()
