"""What of a database is sound, and what that means for each of its runs. Nothing here writes."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from graph.checkpointer import CompressedSerializer
from state.channel import tree_digest
from state.database import ArchiveError
from state.edits import EVENT, apply
from state.integrity import file_problems, header_problem, log_beside, reading, table_names
from state.search import SearchState
from state.soundness import Contents, Damage, Table, contents, judged
from state.tree import SearchTree, new_tree

_CHECKPOINT = ("thread_id", "checkpoint_ns", "checkpoint_id")
_WRITE = (*_CHECKPOINT, "task_id", "idx")
_LOADS = CompressedSerializer().loads_typed


@dataclass(frozen=True)
class Step:
    """A checkpoint that loads, without its state."""

    id: str
    number: int
    """Of its row."""
    looped: bool
    """A node wrote it, not a person."""
    branch: str
    start: int
    """Position of the first event of `log`."""
    log: list[dict[str, Any]]
    needs: frozenset[str]
    """Ids of the programs without which the run cannot go on from here."""


Outlook = Literal["whole", "earlier", "readable", "lost"]
"""whole: everything is there; earlier: it can go on from an earlier step; readable: programs and verdicts are there."""


@dataclass(frozen=True)
class Fate:
    """What became of a run."""

    outlook: Outlook
    problems: tuple[str, ...] = ()
    state: SearchState | None = None
    """Where it can go on."""
    step: str = ""
    """Id of the checkpoint with that state; newer ones are of no use."""


@dataclass
class Examination:
    """All that is known of a database file."""

    path: Path
    file: list[str] = field(default_factory=list)
    """What is wrong with the file itself."""
    contents: Contents = field(default_factory=Contents)
    steps: dict[str, list[Step]] = field(default_factory=dict)
    """The checkpoints of each run that load, the newest first."""
    fates: dict[str, Fate] = field(default_factory=dict)
    """Of each run, the newest first."""

    def damaged(self, table: str) -> list[Damage]:
        """The damaged rows of one table."""
        found = self.contents.tables.get(table)
        return [] if found is None else found.damaged

    def sound(self) -> bool:
        """Whether nothing at all is damaged."""
        whole = all(fate.outlook == "whole" for fate in self.fates.values())
        return whole and not self.file and not any(self.damaged(name) for name in self.contents.tables)

    def belonging(self, run: str | None) -> Examination:
        """What concerns one run: its rows, its programs' rows, and rows of which nobody knows whose they are."""
        if run is None:
            return self
        mine = {run, *self.contents.programs_of(run)}
        tables = {
            name: Table(name, {number: owner for number, owner in table.sound.items() if owner in mine},
                        [damage for damage in table.damaged if damage.owner is None or damage.owner in mine])
            for name, table in self.contents.tables.items()
        }  # fmt: skip
        return replace(self, contents=replace(self.contents, tables=tables), fates={run: self.fates[run]})


def examine(path: Path) -> Examination:
    """The file, its rows and its runs are judged. Raises ArchiveError when there is no file to be read."""
    try:
        for _ in range(3):
            before = (path.stat().st_mtime_ns, path.stat().st_size, log_beside(path))
            found = _examined(path)
            if before[-1] or before == (path.stat().st_mtime_ns, path.stat().st_size, log_beside(path)):
                break
    except OSError as error:
        raise ArchiveError(f"{path}: cannot be read ({error.strerror})") from None
    except sqlite3.OperationalError as error:
        raise ArchiveError(f"{path}: cannot be opened ({error})") from None
    return found


def _examined(path: Path) -> Examination:
    found = Examination(path)
    problem = header_problem(path)
    if problem is not None:
        found.file.append(problem)
        return found
    with reading(path) as connection:
        found.file += file_problems(path, connection)
        known = table_names(connection)
        if not known & {"runs", "checkpoints"}:
            found.file.append("it holds no table of K-Search, or its list of tables is destroyed")
            return found
        found.contents = contents(connection)
        if "checkpoints" in known:
            _read_checkpoints(connection, found)
        runs = list(found.contents.runs)[::-1]
        others = [*found.steps, *(run for run, _ in found.contents.events)]
        for run in dict.fromkeys([*runs, *others]):
            found.fates[run] = _fate(connection, found, run)
    return found


def _read_checkpoints(connection: sqlite3.Connection, found: Examination) -> None:
    def checkpoint(row: sqlite3.Row) -> str | None:
        values = _LOADS((row["type"], row["checkpoint"]))["channel_values"]
        looped = json.loads(row["metadata"])["source"] == "loop"
        if looped and "tree" in values and tree_digest(values["tree"]) != values["tree_digest"]:
            return "its tree is not the one that was written"
        found.steps.setdefault(row["thread_id"], []).append(_step(row, looped, values))
        return None

    def write(row: sqlite3.Row) -> str | None:
        _LOADS((row["type"], row["value"]))
        return None

    tables = found.contents.tables
    tables["checkpoints"] = judged(connection, "checkpoints", _CHECKPOINT, "thread_id", checkpoint)
    tables["writes"] = judged(connection, "writes", _WRITE, "thread_id", write)
    for steps in found.steps.values():
        steps.sort(key=lambda step: step.id, reverse=True)


def _step(row: sqlite3.Row, looped: bool, values: dict[str, Any]) -> Step:
    log = values.get("log") or []
    action, last, best = (values.get(name) or {} for name in ("action", "last", "best"))
    needs: list[str | None] = [action.get("program"), action.get("parent_program"), last.get("program"),
                               best.get("program")]  # fmt: skip
    needs += [node.get("program_id") for node in (values.get("tree") or {}).get("nodes", [])]
    return Step(
        id=row["checkpoint_id"], number=row["number"], looped=looped, branch=values.get("branch", "main"), log=log,
        start=values.get("event_count", 0) - len(log), needs=frozenset(name for name in needs if name is not None),
    )  # fmt: skip


def _fate(connection: sqlite3.Connection, found: Examination, run: str) -> Fate:
    """What the run's newest checkpoint, its programs and its log allow."""
    held, steps = found.contents, found.steps.get(run, [])
    usable = next((step for step in steps if step.needs <= held.programs), None)
    gone = _gone(found, run)
    if steps and usable is not steps[0]:
        lacking = sorted(steps[0].needs - held.programs)
        gone.append(f"a program that its newest step needs is damaged or gone: {lacking[0]}")
    if usable is None:
        readable = bool(held.programs_of(run) & held.programs)
        return Fate("readable" if readable else "lost", tuple(gone))
    values = _values(connection, usable)
    log = _log_problems(held, run, usable, values)
    if log and not any(damage.id.startswith(f"{run}/") for damage in found.damaged("events")):
        held.tables["events"].damaged.append(Damage(f"{run}/{usable.branch}", log[0], run))
    return Fate("earlier" if gone else "whole", (*gone, *log), values, usable.id)


def _gone(found: Examination, run: str) -> list[str]:
    """Whether the run's newest checkpoint is there, in words when it is not."""
    steps, held = found.steps.get(run, []), found.contents
    if not steps:
        return ["its checkpoints are gone"]
    broken = [damage.id for damage in found.damaged("checkpoints") if damage.id.startswith(f"{run}/")]
    if broken and max(broken).rsplit("/", 1)[-1] > steps[0].id:
        return ["its newest checkpoint is damaged"]
    recorded = max(held.events.get((run, steps[0].branch), {}), default=-1) + 1
    if steps[0].looped and recorded > steps[0].start + len(steps[0].log):
        return ["its newest checkpoint is gone"]
    return []


def _values(connection: sqlite3.Connection, step: Step) -> SearchState:
    row = connection.execute("SELECT type, checkpoint FROM checkpoints NOT INDEXED WHERE rowid = ?", [step.number])
    values: SearchState = _LOADS(tuple(row.fetchone()))["channel_values"]
    return values


def _log_problems(held: Contents, run: str, step: Step, values: SearchState) -> list[str]:
    """What is wrong with the log up to this step. A tree that a person wrote over need not follow from it."""
    if "tree" not in values:
        return []
    recorded = held.log(run, step.branch, step.start)
    if recorded is None:
        return ["its log has gaps"]
    if tree_digest(values["tree"]) != values["tree_digest"]:
        return []
    tree = SearchTree.model_validate(values["tree"])
    events = [*recorded, *(EVENT.validate_python(event) for event in step.log)]
    folded = apply(new_tree(tree["n0"].intent.title), events).tree
    return [] if folded == tree else ["its events do not give its newest checkpoint's tree"]
