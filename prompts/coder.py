"""What the coder is asked, and the program in its reply."""

from __future__ import annotations

import re
from dataclasses import dataclass

from prompts.feedback import timings, weakest
from prompts.rendering import render
from prompts.replies import answer, fenced
from state.effects import Prompt
from state.program import Language, Program, imports_triton
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


def ask(assignment: Assignment) -> Prompt:
    """The prompt that asks for a program."""
    a = assignment
    return render(
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
    )


@dataclass(frozen=True)
class Unusable:
    """A reply without a program, and why."""

    reason: str


def parse_program(reply: str, task: Task, language: Language) -> Program | Unusable:
    """The last complete code block that defines the entry point. Never raises."""
    text = answer(reply)
    if not text:
        return Unusable("the reply is empty")
    blocks = fenced(text)
    if not blocks:
        return Unusable("the reply has no fenced code block")
    complete = [block.text for block in blocks if block.closed]
    fitting = [code for code in complete if _defines(code, task.entry_point, language)]
    if language == "triton" and fitting and not imports_triton(fitting[-1]):
        return Unusable("the program does not import triton")
    if fitting:
        return Program(language=language, source=fitting[-1])
    if not complete:
        return Unusable("the code block is not closed: the reply was cut off")
    return Unusable(f"no code block defines the entry point {task.entry_point}")


def _defines(code: str, entry_point: str, language: Language) -> bool:
    """Whether a source text looks as if it defined the entry point."""
    forms = {
        "cpp": rf"void\s+{entry_point}\s*\(",
        "python": rf"^(def|class)\s+{entry_point}\s*[(:]",
        "triton": rf"^(def|class)\s+{entry_point}\s*[(:]",
        "cuda": rf'TVM_FFI_DLL_EXPORT_TYPED_FUNC\(\s*{entry_point}\s*,|\.def\(\s*"{entry_point}"',
    }
    return re.search(forms[language], code, re.MULTILINE) is not None
