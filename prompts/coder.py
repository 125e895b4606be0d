"""What the coder is asked."""

from __future__ import annotations

from dataclasses import dataclass

from prompts.feedback import timings, weakest
from prompts.rendering import SHIPPED, Templates
from state.effects import Prompt
from state.program import Language, Program
from state.search import LastAttempt
from state.tree import Intent
from state.verdict import Passed
from tasks.task import Task

LANGUAGE_NAMES: dict[Language, str] = {
    "cpp": "C++17", "python": "Python (PyTorch)", "triton": "Triton", "cuda": "CUDA C++",
}  # fmt: skip


@dataclass(frozen=True)
class Assignment:
    """All that a coder prompt is made of."""

    task: Task
    language: Language
    hardware: str
    intent: Intent
    attempt: int
    """1 for the first attempt at this intent."""
    parent: Program | None
    parent_score: float | None
    best: Program | None
    best_verdict: Passed | None
    last: LastAttempt | None
    last_program: Program | None
    parent_verdict: Passed | None = None
    last_verdict: Passed | None = None
    """None unless the last program passed."""
    sample: int = 1
    """1 for the first program of this attempt."""
    samples: int = 1
    """Programs that an attempt asks for, each by a prompt of its own."""


def ask(assignment: Assignment, templates: Templates = SHIPPED) -> Prompt:
    """The prompt that asks for a program."""
    a = assignment
    return templates.render(
        "coder.md.j2",
        {
            "task": a.task,
            "language": a.language,
            "language_name": LANGUAGE_NAMES[a.language],
            "hardware": a.hardware,
            "intent": a.intent.model_dump(),
            "attempt": a.attempt,
            "sample": a.sample,
            "samples": a.samples,
            "parent": a.parent,
            "parent_score": a.parent_score,
            "parent_weakest": "" if a.parent_verdict is None else weakest(a.parent_verdict),
            "best": a.best,
            "best_score": None if a.best_verdict is None else a.best_verdict.score,
            "best_timings": "" if a.best_verdict is None else timings(a.best_verdict, a.task),
            "last": None if a.last is None else a.last.model_dump(),
            "last_program": a.last_program,
            "last_timings": "" if a.last_verdict is None else timings(a.last_verdict, a.task),
        },
        a.language,
    )
