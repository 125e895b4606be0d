"""What models wrap their answers in: thinking, fences, line ends."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[^\n]*\n(.*?)(^[ \t]*\1[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a reply."""

    text: str
    closed: bool
    """False when the reply ended before the fence did."""


def answer(reply: str) -> str:
    """The reply without thinking blocks, with plain line ends."""
    return _THINKING.sub("", reply.replace("\r\n", "\n")).strip()


def fenced(text: str) -> list[Block]:
    """The fenced blocks of an answer, in order."""
    return [Block(match[2], bool(match[3].strip())) for match in _FENCE.finditer(text)]
