"""The state of a run as LangGraph stores it, and the small decisions of Algorithm 1."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from state.edits import Edit, Event
from state.effects import CallKey, Reply
from state.settings import Approval, Settings

DRY_LIMIT = 3
"""Turns in a row that leave the frontier empty before the run ends."""
IDLE_FACTOR = 10
"""Times K: attempts in a row that cost no evaluation before the run ends."""


class SearchState(TypedDict, total=False):
    """JSON-plain channels; nodes parse them into the models below. Texts live in the archive."""

    task: str
    model: str
    budget: int
    approve: Approval
    advanced: dict[str, Any]
    run: str
    """Id of the run, equal to the thread id."""
    branch: str
    """"main", or the name of a fork."""
    settings: dict[str, Any]
    status: Literal["running", "done"]
    tree: dict[str, Any]
    tree_digest: str
    """Digest of `tree` as a node left it; a person's direct overwrite does not match it."""
    log: list[dict[str, Any]]
    """Events of the current round; earlier ones are in the archive."""
    event_count: int
    round: int
    action: dict[str, Any] | None
    """The intent being pursued (Action)."""
    last: dict[str, Any] | None
    """The latest attempt (LastAttempt)."""
    outcome: dict[str, Any] | None
    """The intent that was closed last (Outcome)."""
    best: dict[str, Any] | None
    """The best confirmed program of the run (Best)."""
    evaluations: int
    """Verdicts spent on attempts, of `budget`."""
    attempts: int
    """Attempts of any kind; the next one's ordinal."""
    turns: int
    """World-model turns; the next one's ordinal."""
    elapsed_s: float
    """Seconds spent in model calls and evaluations."""
    asked: dict[str, int]
    """Model calls and their tokens, in and out: "calls", "tokens"."""
    dry: int
    idle: int
    pending: dict[str, Any] | None
    """Edits that wait for approval (Pending)."""
    rejected: list[str]
    """Edits refused since the world model's last turn, each with its reason."""
    words: list[str]
    """What people said when they rejected edits; shown to the world model next turn."""
    person_edits: list[dict[str, Any]]
    """Edits that a person put here; the next `approve` or `select` applies them."""
    repair: dict[str, Any] | None
    """An unusable reply of the world model, with its errors (Repair)."""
    parked: dict[str, Any] | None
    """Set while the evaluator is away, or replies of an operator are awaited (Parked)."""
    baseline: list[dict[str, Any]]
    result: dict[str, Any] | None
    """What `finish` wrote."""
    stop_reason: str | None


class Spending(TypedDict, total=False):
    """The channels of SearchState that say how much of the budget is left."""

    evaluations: int
    elapsed_s: float
    asked: dict[str, int]
    idle: int


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Action(_Frozen):
    """a_t: the intent being pursued and how far its refinement has come."""

    node: str
    parent_program: str | None
    """x_parent; None means the specification alone."""
    parent_score: float | None
    attempts: int = 0
    stagnation: int = 0
    """n: attempts since the last improvement."""
    program: str | None = None
    """The action's best program."""
    score: float = 0.0
    noise: float = 0.0
    verdicts: tuple[str, ...] = ()
    """Kind of each sample's verdict, in order."""


class LastAttempt(_Frozen):
    """What the coder is shown of the attempt before."""

    node: str
    ordinal: int
    program: str | None
    verdict: str
    """Kind of verdict, "duplicate" or "unusable"."""
    score: float
    message: str
    """One line, or the reason why a reply was unusable."""
    improved: bool = False
    reused: bool = False
    """The verdict was in the archive already: nothing was measured for this attempt."""
    samples: tuple[str, ...] = ()
    """What each program of the attempt came to when there were several; the fields above are the best one's."""


class Outcome(_Frozen):
    """How an intent ended."""

    node: str
    program: str | None
    score: float | None
    parent_score: float | None
    verdicts: tuple[str, ...]


class Best(_Frozen):
    """A program whose score was confirmed by a second measurement."""

    node: str
    program: str
    score: float
    noise: float


class Pending(_Frozen):
    """Tree edits that a person may still change."""

    edits: tuple[Edit, ...]
    digest: str
    """Of the edits; an answer to another set is refused."""


class Repair(_Frozen):
    """A world-model reply that could not be used, and what was wrong with it."""

    reply: str
    errors: tuple[str, ...]


class AwaitedPrompt(_Frozen):
    """A prompt whose reply an operator has yet to give."""

    key: CallKey
    """Under which the reply will be in the archive."""
    template: str
    variables: str
    """As in Prompt; kept with the reply."""
    text: str
    """All that a model would be sent, the turns before included."""

    @property
    def id(self) -> str:
        """Short, fit for a file name; no other question of the run has it."""
        return f"{self.key.role}-{self.key.ordinal}-{self.key.prompt_hash[:6]}"


class Parked(_Frozen):
    """The evaluation that could not be made, or the replies that were not there yet."""

    reason: str
    program: str | None
    prompts: tuple[AwaitedPrompt, ...] = ()
    """Not empty: an operator is waited for, not the evaluator."""


def digest(value: object) -> str:
    """Sixteen hex digits of a JSON-plain value."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # half a surrogate pair, or an integer beyond 64 bits
        text = json.dumps(value, sort_keys=True).encode()
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def pending(edits: tuple[Edit, ...]) -> Pending:
    """These edits with their digest."""
    return Pending(edits=edits, digest=digest([edit.model_dump(mode="json") for edit in edits]))


def improves(score: float, noise: float, best: tuple[float, float] | None, minimum: float) -> bool:
    """Whether a score beats the best (score, noise) by more than the minimum gain and the noise of both."""
    if not score > 0:
        return False
    if best is None or best[0] <= 0:
        return True
    return score > best[0] * (1 + max(minimum, 2 * math.hypot(noise, best[1])))


def budget_left(state: Spending, settings: Settings) -> bool:
    """Whether another attempt may be made: no limit is reached, and attempts still cost some of the budget."""
    minutes = state["elapsed_s"] / 60
    return (
        state["evaluations"] < settings.budget
        and (settings.max_calls is None or state["asked"]["calls"] < settings.max_calls)
        and (settings.max_tokens is None or state["asked"]["tokens"] < settings.max_tokens)
        and (settings.max_minutes is None or minutes < settings.max_minutes)
        and state["idle"] < IDLE_FACTOR * settings.stagnation
    )


def why_stopped(state: SearchState, settings: Settings) -> str:
    """One line: which limit ended the run."""
    if state["evaluations"] >= settings.budget:
        return f"the budget of {settings.budget} evaluations is spent"
    if settings.max_calls is not None and state["asked"]["calls"] >= settings.max_calls:
        return f"the limit of {settings.max_calls} model calls is reached"
    if settings.max_tokens is not None and state["asked"]["tokens"] >= settings.max_tokens:
        return f"the limit of {settings.max_tokens} tokens is reached"
    if settings.max_minutes is not None and state["elapsed_s"] / 60 >= settings.max_minutes:
        return f"the limit of {settings.max_minutes:g} minutes is reached"
    if state["idle"] >= IDLE_FACTOR * settings.stagnation:
        return f"{state['idle']} attempts in a row brought no new program"
    return f"the world model had no new intent in {state['dry']} turns"


def counted(asked: dict[str, int], replies: Sequence[Reply]) -> dict[str, int]:
    """The calls and tokens so far, these replies included."""
    tokens = sum(reply.input_tokens + reply.output_tokens for reply in replies)
    return {"calls": asked["calls"] + len(replies), "tokens": asked["tokens"] + tokens}


def logged(state: SearchState, events: tuple[Event, ...]) -> SearchState:
    """The change of `log` and `event_count` that appends these events."""
    log = state["log"] + [event.model_dump(mode="json") for event in events]
    return {"log": log, "event_count": state["event_count"] + len(events)}
