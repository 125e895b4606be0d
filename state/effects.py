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


class Prompt(_Frozen):
    """A rendered prompt; the archive keeps its template's name and variables, not the text."""

    template: str
    """Name and hash of the template file."""
    variables: str
    """JSON of the variables, programs by their ids."""
    text: str
