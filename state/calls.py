"""The archive's part that keeps model calls: each is paid for once, and counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from state.database import packed, unpacked
from state.effects import CallKey, Prompt, Reply, Spending
from state.store import Store

Clock = Callable[[], float]
_COUNTS = "model, input_tokens, output_tokens, cached_tokens, reasoning_tokens, finish"
"""Columns of a call, and fields of a Reply."""


class Calls(Store):
    """Get-or-make access to replies."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path)
        self._clock = clock

    def reply(self, key: CallKey, prompt: Prompt, call: Callable[[], Reply]) -> tuple[Reply, float]:
        """The model's reply and the seconds that it took when it was paid for.

        What `call` raises passes through and nothing is stored.
        """
        where = list(key.model_dump().values())
        row = self._one(
            f"SELECT reply, seconds, {_COUNTS} FROM model_calls WHERE run = ? AND "
            "branch = ? AND node = ? AND ordinal = ? AND role = ? AND prompt_hash = ?", where,
        )  # fmt: skip
        if row is not None:
            counts = {
                name: value for name, value in zip(_COUNTS.split(", "), row[2:], strict=True) if value is not None
            }
            return Reply(text=unpacked(row[0]), **counts), row[1]
        begun = self._clock()
        reply = call()
        seconds = self._clock() - begun
        self.keep_reply(key, prompt, reply, seconds)
        return reply, seconds

    def keep_reply(self, key: CallKey, prompt: Prompt, reply: Reply, seconds: float) -> None:
        """The reply, which took so many seconds, is under the key."""
        self._execute(
            "INSERT OR REPLACE INTO model_calls (run, branch, node, ordinal, role, prompt_hash, template, "
            f"variables, reply, seconds, {_COUNTS}, created) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, datetime('now'))",
            [*key.model_dump().values(), prompt.template, packed(prompt.variables), packed(reply.text), seconds,
             *(getattr(reply, name) for name in _COUNTS.split(", "))], cost_s=seconds,
        )  # fmt: skip

    def has_reply(self, key: CallKey) -> bool:
        """Whether a reply is under the key."""
        where = list(key.model_dump().values())
        return self._one(
            "SELECT 1 FROM model_calls WHERE run = ? AND branch = ? AND node = ? AND ordinal = ? AND role = ? "
            "AND prompt_hash = ?", where,
        ) is not None  # fmt: skip

    def spending(self, run: str) -> list[Spending]:
        """What the run's calls came to, by role and model."""
        rows = self._all(
            "SELECT role, model, count(*), sum(input_tokens), sum(coalesce(cached_tokens, 0)), sum(output_tokens), "
            "sum(coalesce(reasoning_tokens, 0)), sum(lower(coalesce(finish, '')) IN ('length', 'max_tokens')), "
            "sum(seconds) FROM model_calls WHERE run = ? GROUP BY role, model ORDER BY role DESC, model", [run],
        )  # fmt: skip
        return [Spending(**dict(zip(Spending.model_fields, row, strict=True))) for row in rows]
