"""What is paid for, a verdict or a model's reply, and the keys under which it is paid for once."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Purpose = Literal["attempt", "seed", "confirm", "held_out"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class VerdictKey(_Frozen):
    """What a verdict depends on. Equal keys mean equal verdicts, in whatever run they were reached."""

    program: str
    task_hash: str
    evaluator: str
    hardware: str
    purpose: Purpose

    @property
    def judged(self) -> tuple[str, str, str, str]:
        """All but the purpose: the program, under what verdicts on it hold for."""
        return self.program, self.task_hash, self.evaluator, self.hardware


class CallKey(_Frozen):
    """What makes a model call the same call."""

    run: str
    branch: str
    node: str
    ordinal: int
    role: Literal["world_model", "coder"]
    prompt_hash: str


class Reply(_Frozen):
    """What a model answered."""

    text: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the input, read from the provider's cache."""
    reasoning_tokens: int = 0
    """Of the output, thought and not said."""
    finish: str = ""
    """Why the reply ended, in the provider's word: "stop", "length"; empty where it says nothing."""

    @property
    def cut_off(self) -> bool:
        """Whether the model was stopped by the limit on its output."""
        return self.finish.lower() in ("length", "max_tokens")


class Spending(_Frozen):
    """What the calls of one role to one model came to."""

    role: str
    model: str
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cut_off: int
    """Replies that the limit on their length ended."""
    seconds: float


class Prompt(_Frozen):
    """A rendered prompt; the archive keeps its template's name and variables, not the text."""

    template: str
    """Name and hash of the template file."""
    variables: str
    """JSON of the variables, programs by their ids."""
    text: str
