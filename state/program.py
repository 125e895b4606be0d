"""A program is source text in one language; its id is a hash of what it says."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict

Language = Literal["cpp"]

SUFFIX: dict[Language, str] = {"cpp": ".cpp"}
"""The file name suffix of each language."""


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
