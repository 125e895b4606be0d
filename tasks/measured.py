"""What an export is made of."""

from __future__ import annotations

from dataclasses import dataclass

from state.program import Program
from state.verdict import Passed, Receipt
from tasks.task import Task


@dataclass(frozen=True)
class Measured:
    """A program that passed, with what vouches for it."""

    task: Task
    program: Program
    verdict: Passed
    receipt: Receipt
    when: str
    """When it was measured: date and time in ISO form, UTC."""
    remark: str = ""
    """What must be said wherever the result is shown."""
