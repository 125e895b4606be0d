"""A new database with everything that is sound in a damaged one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from graph.checkpointer import Saver
from graph.examining import Examination
from nodes.projection import record
from state.archive import Archive
from state.database import ArchiveError, connect
from state.edits import EVENT
from state.integrity import columns, reading
from state.settings import Settings

_AT_ONCE = 200


def salvage(found: Examination, path: Path) -> dict[str, int]:
    """The new file holds every sound row; returns how many of each table.

    Of a run, checkpoints after the one from which it can go on are left out; events that are missing from a log
    are taken from checkpoints, which hold them too, and so is a run's line in the list of runs.
    Raises ArchiveError when the new file exists or cannot be made.
    """
    if path.exists():
        raise ArchiveError(f"{path}: exists already; name a new file for what is salvaged")
    archive = Archive(path)
    with closing(archive):
        Saver(path).close()
        with reading(found.path) as old, closing(connect(path)) as new:
            new.execute("BEGIN")
            for name in found.contents.tables:
                _copy(old, new, name, found)
            restored = _restore_events(new, found)
            new.execute("COMMIT")
        for run, fate in found.fates.items():
            if fate.state is not None and "tree" in fate.state and _unlisted(found, run):
                record(fate.state, Settings.model_validate(fate.state["settings"]), archive)
    kept = {name: len(table.sound) for name, table in found.contents.tables.items()}
    return {**kept, "events": kept.get("events", 0) + restored}


def _unlisted(found: Examination, run: str) -> bool:
    """Whether the run's line in the list of runs is gone or ahead of the step from which it goes on."""
    return run not in found.contents.runs or found.fates[run].outlook == "earlier"


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, name: str, found: Examination) -> None:
    there = columns(old, name)
    both = [column for column in columns(new, name) if column in there]
    text, marks = ", ".join(both), ", ".join("?" for _ in both)
    wanted = sorted(found.contents.tables[name].sound)
    for start in range(0, len(wanted), _AT_ONCE):
        rows = [
            old.execute(f"SELECT {text} FROM {name} NOT INDEXED WHERE rowid = ?", [number]).fetchone()
            for number in wanted[start : start + _AT_ONCE]
        ]
        kept = [tuple(row) for row in rows if not _beyond(row, name, found)]
        new.executemany(f"INSERT OR IGNORE INTO {name} ({text}) VALUES ({marks})", kept)


def _beyond(row: sqlite3.Row, name: str, found: Examination) -> bool:
    """Whether this belongs to a step that its run cannot go on from."""
    if name not in ("checkpoints", "writes"):
        return False
    fate = found.fates.get(row["thread_id"])
    return fate is not None and fate.step != "" and row["checkpoint_id"] > fate.step


def _restore_events(new: sqlite3.Connection, found: Examination) -> int:
    """The events that only checkpoints hold are in the log; returns how many."""
    count = 0
    for run, steps in found.steps.items():
        for step in steps:
            for seq, plain in enumerate(step.log, step.start):
                event = EVENT.validate_python(plain)
                count += new.execute(
                    "INSERT OR IGNORE INTO events (run, branch, seq, round, kind, author, event) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    [run, found.contents.owner(run, step.branch, seq), seq, event.round, event.kind, event.author,
                     EVENT.dump_json(event).decode()],
                ).rowcount  # fmt: skip
    return count
