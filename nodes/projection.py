"""What the archive's tables `runs` and `events` show of a state; both can be rebuilt from the checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from state.archive import Archive
from state.search import Best, SearchState
from state.settings import Settings


def announce(run: str, settings: Settings, archive: Archive) -> None:
    """A run that has only just begun is in the list of runs."""
    archive.save_run(
        run, {**_choices(settings), "status": "running", "evaluations": 0, "attempts": 0, "branch": "main"}
    )


def record(state: SearchState, settings: Settings, archive: Archive, known: int | None = None) -> None:
    """The state's events and its line in the list of runs are in the archive; doing so again changes nothing.

    `known` of the events are there already, if the caller has looked.
    """
    start = state["event_count"] - len(state["log"])
    best = None if state["best"] is None else Best.model_validate(state["best"])
    summary = {
        **_choices(settings),
        "status": state["status"],
        "evaluations": state["evaluations"],
        "attempts": state["attempts"],
        "branch": state["branch"],
        "best_score": None if best is None else best.score,
        "best_program": None if best is None else best.program,
    }
    with archive.transaction():
        archive.record(state["run"], state["branch"], start, state["log"], known)
        archive.save_run(state["run"], summary)


def _choices(settings: Settings) -> dict[str, Any]:
    return {
        "task": Path(settings.task).name,
        "model": settings.model,
        "world_model": settings.world_model_name,
        "coder": settings.coder_name,
        "budget": settings.budget,
    }
