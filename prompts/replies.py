"""What models wrap their answers in: thinking, fences, line ends."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FENCE = re.compile(r"[ \t]*(```+|~~~+)(.*)")
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
    blocks: list[Block] = []
    fence: str | None = None
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line) if "```" in line or "~~~" in line else None
        if fence is None and found:
            fence, lines = found[1], []
        elif fence is not None and found and found[1] == fence and not found[2].strip():
            blocks.append(Block("".join(lines), closed=True))
            fence = None
        elif fence is not None:
            lines.append(line)
    if fence is not None:
        blocks.append(Block("".join(lines), closed=False))
    return blocks
