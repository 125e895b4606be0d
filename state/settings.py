"""What a person chooses before a run; kept in the run's state, so that resuming needs no flags."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Approval = Literal["never", "prunes", "edits"]


class RunInput(BaseModel):
    """The form that starts a run: the fields most often changed. Every default runs as it is."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field(default="int8_gemm", description="Name of a shipped task, or path of a task folder")
    model: str = Field(default="playbook", description="playbook, operator, openai:NAME or google_genai:NAME")
    budget: int = Field(default=120, ge=1, description="B: number of verdicts to spend on attempts")
    approve: Approval = Field(default="never", description="Which tree edits wait for a person's word")
    advanced: dict[str, object] = Field(
        default={}, description="Any other setting by name, e.g. stagnation, march, max_minutes"
    )


class Settings(BaseModel):
    """Every choice of a run. Frozen once it has begun."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str = "int8_gemm"
    model: str = "playbook"
    world_model: str | None = None
    """Model for tree edits when it is not `model`."""
    coder: str | None = None
    """Model for programs when it is not `model`."""
    switch_at: int | None = Field(default=None, ge=1)
    """Evaluations after which `switch_to` plays both roles."""
    switch_to: str | None = None
    base_url: str | None = None
    """Address of an OpenAI-compatible server that serves the openai models."""
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    """None, here and in the next two, leaves the choice to the provider."""
    reasoning_effort: str | None = Field(default=None, pattern=r"^[a-z]+$")
    max_output_tokens: int | None = Field(default=None, ge=1)
    """Of one reply."""
    call_timeout_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    """Seconds that a server may stay silent."""
    budget: int = Field(default=120, ge=1)
    """B: verdicts on attempts."""
    stagnation: int = Field(default=7, ge=1)
    """K: attempts without an improvement after which an intent is closed."""
    min_improvement: float = Field(default=0.02, ge=0, allow_inf_nan=False)
    """Relative gain in J below which a better score is a tie."""
    max_difficulty: int = Field(default=5, ge=1, le=5)
    """Open intents that are harder wait; unknown counts as 3."""
    approve: Approval = "never"
    max_minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Cap on the minutes spent in model calls and evaluations."""
    max_calls: int | None = Field(default=None, ge=1)
    """Cap on model calls; no call begins that would pass it."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Cap on tokens, in and out: no call begins once they are used up."""
    prompts: str | None = None
    """Folder of templates that replace shipped ones."""
    language: str | None = None
    """Language of the programs; None means the task's first."""
    seed_program: str | None = None
    """Source text of a program to start from."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where programs run whose language leaves it open (python)."""
    march: str = Field(default="native", pattern=r"^[A-Za-z0-9_.+-]+$")
    """Value of -march for the compiler."""
    threads: int | None = Field(default=None, ge=1)
    """OpenMP threads; None means one per core that this process may use."""
    samples: int = Field(default=1, ge=1)
    """M: programs that one attempt samples; the budget counts each."""
    evaluator: Literal["local", "spool"] = "local"
    """Where programs are judged: on this machine, or on one that only files reach."""
    spool: str | None = None
    """The folder of requests for the other machine."""
    hardware: str | None = None
    """What prompts and verdict keys call the other machine."""

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if (self.evaluator == "spool") != (self.spool is not None):
            raise ValueError("evaluator 'spool' and spool (the folder of its requests) go together")
        if (self.switch_at is None) != (self.switch_to is None):
            raise ValueError("switch_at (evaluations) and switch_to (a model) go together")
        if self.hardware is not None and self.spool is None:
            raise ValueError("hardware names the machine that serves a spool; here it is found out")
        return self

    @property
    def world_model_name(self) -> str:
        """The model that edits the tree."""
        return self.world_model or self.model

    @property
    def coder_name(self) -> str:
        """The model that writes programs."""
        return self.coder or self.model

    @property
    def models(self) -> tuple[str, ...]:
        """Every model that may be called, each once."""
        return tuple(dict.fromkeys(filter(None, (self.world_model_name, self.coder_name, self.switch_to))))

    def switched(self, evaluations: int) -> bool:
        """Whether `switch_to` plays both roles by now."""
        return self.switch_at is not None and evaluations >= self.switch_at
