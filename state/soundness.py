"""Whether what the archive's rows say holds together: ids that fit texts, receipts that fit verdicts, whole logs."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field

import zstandard

from state.database import unpacked
from state.edits import EVENT, Event
from state.integrity import rows
from state.program import Program
from state.verdict import VERDICT, score_of

UNREADABLE = "it cannot be read"
_BROKEN = (ValueError, TypeError, LookupError, AttributeError, NotImplementedError, MemoryError, zstandard.ZstdError)
"""What damaged bytes raise where they are unpacked and parsed (pydantic's and JSON's errors are ValueErrors)."""


@dataclass(frozen=True)
class Damage:
    """A row that cannot be trusted, or that should be there."""

    id: str
    problem: str
    owner: str | None
    """The run that it belongs to, of a program or a verdict the program; None when that cannot be read either."""


@dataclass
class Table:
    """What became of one table."""

    name: str
    sound: dict[int, str] = field(default_factory=dict)
    """Row numbers, each with its owner."""
    damaged: list[Damage] = field(default_factory=list)


@dataclass
class Contents:
    """What could be read of the archive."""

    tables: dict[str, Table] = field(default_factory=dict)
    runs: dict[str, sqlite3.Row] = field(default_factory=dict)
    """The lines of the list of runs, the oldest first."""
    programs: set[str] = field(default_factory=set)
    """Ids of the programs whose texts are what they were."""
    unverified: int = 0
    """Verdicts without a receipt."""
    branches: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    """Parent and first own position of every fork of a run."""
    events: dict[tuple[str, str], dict[int, Event]] = field(default_factory=dict)
    """Of every run's branches, by position."""

    def log(self, run: str, branch: str, end: int) -> list[Event] | None:
        """A branch's events up to position `end`, its parents' included; None when one is missing."""
        found: list[Event] = []
        for seq in range(end):
            event = self.events.get((run, self.owner(run, branch, seq)), {}).get(seq)
            if event is None:
                return None
            found.append(event)
        return found

    def owner(self, run: str, branch: str, seq: int) -> str:
        """The branch that holds position `seq` of this one's log."""
        while (run, branch) in self.branches and seq < self.branches[run, branch][1]:
            branch = self.branches[run, branch][0]
        return branch

    def programs_of(self, run: str) -> set[str]:
        """Ids of the programs that were tried in a run."""
        return {
            event.program_id
            for (owner, _), events in self.events.items() for event in events.values()
            if owner == run and event.kind == "attempt" and event.program_id is not None
        }  # fmt: skip


def contents(connection: sqlite3.Connection) -> Contents:
    """The archive's rows, each judged by itself and the logs as wholes. Reads every row once."""
    found = Contents()
    for name, (key, owner, judge) in _JUDGES.items():
        found.tables[name] = judged(connection, name, key, owner, lambda row, judge=judge: judge(row, found))  # type: ignore[misc]
    found.tables["events"].damaged += _missing(found)
    return found


def judged(
    connection: sqlite3.Connection, name: str, key: tuple[str, ...], owner: str,
    judge: Callable[[sqlite3.Row], str | None],
) -> Table:  # fmt: skip
    """One table's rows by what `judge` says of each: what is wrong with it, or None."""
    table = Table(name)
    for row in rows(connection, name, key):
        if row.values is None:
            table.damaged.append(Damage(row.key, UNREADABLE, None))
            continue
        try:
            problem = judge(row.values)
        except _BROKEN as error:
            problem = f"it cannot be parsed ({_first_line(error)})"
        if problem is None:
            table.sound[row.number] = str(row.values[owner])
        else:
            table.damaged.append(Damage(row.key, problem, str(row.values[owner])))
    return table


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def _missing(found: Contents) -> list[Damage]:
    """The gaps in the logs, where no damaged row is known to lie."""
    known = {damage.id for damage in found.tables["events"].damaged}
    gaps: list[Damage] = []
    for (run, branch), events in found.events.items():
        start = found.branches.get((run, branch), ("", 0))[1]
        ids = [f"{run}/{branch}/{seq}" for seq in range(start, max(events)) if seq not in events]
        gaps += [Damage(name, "it is missing from the log", run) for name in ids if name not in known]
    return gaps


def _run(row: sqlite3.Row, found: Contents) -> str | None:
    found.runs[row["run"]] = row
    return None


def _program(row: sqlite3.Row, found: Contents) -> str | None:
    program = Program.model_validate({"language": row["language"], "source": unpacked(row["source"])})
    if program.id != row["id"]:
        return f"its text is that of another program ({program.id})"
    found.programs.add(program.id)
    return None


def _verdict(row: sqlite3.Row, found: Contents) -> str | None:
    verdict = VERDICT.validate_json(row["verdict"])
    receipt = verdict.receipt
    if verdict.kind != row["kind"] or (row["score"] is not None and row["score"] != score_of(verdict)):
        return f"it says {verdict.kind}, J {score_of(verdict):.1f}; its row says {row['kind']}, J {row['score']}"
    if receipt is not None and receipt.program_id != row["program"]:
        return f"its receipt names another program ({receipt.program_id})"
    if receipt is not None and receipt.task_hash != row["task_hash"]:
        return f"its receipt names another task ({receipt.task}, {receipt.task_hash})"
    found.unverified += receipt is None
    return None


def _baseline(row: sqlite3.Row, found: Contents) -> str | None:
    return None if isinstance(json.loads(row["timings"]), list) else "it is no list of timings"


def _model_call(row: sqlite3.Row, found: Contents) -> str | None:
    unpacked(row["reply"])
    json.loads(unpacked(row["variables"]))
    return None


def _branch(row: sqlite3.Row, found: Contents) -> str | None:
    run, branch, parent, at = row["run"], row["branch"], row["parent"], row["at"]
    if not isinstance(at, int) or branch == "main" or (parent != "main" and (run, parent) not in found.branches):
        return f"it begins at position {at!r} of the branch {parent!r}, which is not there"
    found.branches[run, branch] = (parent, at)
    return None


def _event(row: sqlite3.Row, found: Contents) -> str | None:
    event = EVENT.validate_json(row["event"])
    if not isinstance(row["seq"], int) or (event.kind, event.author, event.round) != (
        row["kind"],
        row["author"],
        row["round"],
    ):
        return "its row says something else than it does"
    found.events.setdefault((row["run"], row["branch"]), {})[row["seq"]] = event
    return None


_Judge = Callable[[sqlite3.Row, Contents], str | None]
_JUDGES: dict[str, tuple[tuple[str, ...], str, _Judge]] = {
    "runs": (("run",), "run", _run),
    "programs": (("id",), "id", _program),
    "verdicts": (("program", "task_hash", "evaluator", "hardware", "purpose"), "program", _verdict),
    "baselines": (("run",), "run", _baseline),
    "model_calls": (("run", "branch", "node", "ordinal", "role", "prompt_hash"), "run", _model_call),
    "branches": (("run", "branch"), "run", _branch),
    "events": (("run", "branch", "seq"), "run", _event),
}
"""Of each table the primary key, the column that says whose a row is, and what a sound row is."""
