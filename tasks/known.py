"""What a worker keeps from one evaluation to the next."""

from __future__ import annotations

from tasks.arena import Arena
from tasks.problem import Load


class Known:
    """Warm formulations, and on a GPU the memory that both sides share."""

    def __init__(self) -> None:
        self.warmed: set[tuple[str, str]] = set()
        """Workloads and formulations whose first calls are over."""
        self._kept: dict[tuple[str, ...], Arena] = {}

    def arena(self, loads: list[Load], kind: str) -> Arena:
        """Shared memory for these workloads. On a GPU always the same: where it lies is worth percents of a latency."""
        names = tuple(load.name for load in loads)
        found = self._kept.get(names) or Arena(loads, kind)
        if kind == "cuda":
            self._kept[names] = found
        return found

    def give_back(self, arena: Arena) -> None:
        """The memory is not used any more, and freed unless it is kept."""
        if arena not in self._kept.values():
            arena.close()
