"""A program is source text in one language; its id is a hash of what it says."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

Language = Literal["cpp", "python", "triton", "cuda"]

SUFFIX: dict[Language, str] = {"cpp": ".cpp", "python": ".py", "triton": ".py", "cuda": ".cu"}
"""The file name suffix of each language."""

_IMPORTS_TRITON = re.compile(r"^\s*(?:import\s+(?:[\w. ]+,\s*)*|from\s+)triton\b", re.MULTILINE)


def imports_triton(source: str) -> bool:
    """Whether a Python source imports Triton, which makes it a Triton program."""
    return _IMPORTS_TRITON.search(source) is not None


def language_of(name: str, source: str, allowed: Collection[Language]) -> Language | None:
    """The language that a file's name and text are in, or None when it is none of those allowed."""
    suffix = Path(name).suffix
    fitting: list[Language] = [language for language, ending in SUFFIX.items() if ending == suffix]
    if suffix == ".py":
        fitting = ["triton" if imports_triton(source) else "python"]
    return next((language for language in fitting if language in allowed), None)


class Program(BaseModel):
    """An implementation of a task's entry point (x in the paper)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    language: Language
    source: str

    @cached_property
    def id(self) -> str:
        """Sixteen hex digits that two programs share only when they are byte-identical."""
        text = f"{self.language}\0{self.source}".encode()
        return hashlib.sha256(text).hexdigest()[:16]
