"""The command that says whether a database is sound: verify."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from graph.console import DB, DONE, FAILED, USAGE, Db, Json, complain, db_option, output, say
from graph.examining import Examination, Fate, examine
from graph.salvaging import salvage as save
from state.database import ArchiveError

_SHOWN = 3
_NAMES = {"model_calls": "model calls", "writes": "answers and interrupts"}


def verify(
    run_id: Annotated[str | None, typer.Argument(help="Only what concerns this run.", metavar="RUN")] = None,
    db: Db = DB,
    salvage: Annotated[Path | None, typer.Option(help="Write all that is sound into this new file.")] = None,
    as_json: Json = False,
) -> None:
    """Check whether the database file is sound, and say what damage means for each run.

    The file is opened read-only and never changed, whatever its state.
    """
    if not db.is_file():
        raise ArchiveError(f"{db}: no such file; --db names another")
    whole = examine(db)
    found = whole.belonging(None if run_id is None else _run(whole, run_id))
    saved = save(whole, salvage) if salvage is not None and whole.contents.tables else None
    output(_plain(found, salvage, saved), _view(found), as_json)
    if not as_json:
        say(_conclusion(found, db))
        if salvage is not None:
            say(_salvaged(salvage, saved))
    raise typer.Exit(DONE if found.sound() else FAILED)


def _run(found: Examination, prefix: str) -> str:
    """The id of the run that starts with this."""
    runs = list(found.fates)
    matches = runs[:1] if prefix == "last" else [run for run in runs if run.startswith(prefix)]
    if len(matches) != 1:
        known = ", ".join(run[:8] for run in runs[:10]) or "none can be read"
        raise typer.Exit(complain(f"{prefix!r} is not the id of one run in {found.path} (runs: {known})", USAGE))
    return matches[0]


def _plain(found: Examination, target: Path | None, saved: dict[str, int] | None) -> dict[str, Any]:
    return {
        "database": str(found.path),
        "sound": found.sound(),
        "file": found.file,
        "unverified_verdicts": found.contents.unverified,
        "tables": [
            {"table": table.name, "sound": len(table.sound), "damaged": len(table.damaged),
             "first": [{"id": damage.id, "problem": damage.problem} for damage in table.damaged[:20]]}
            for table in found.contents.tables.values()
        ],
        "runs": [
            {"run": run, "task": _task(found, run), "outlook": fate.outlook, "problems": list(fate.problems),
             "meaning": _meaning(found, fate)}
            for run, fate in found.fates.items()
        ],
        "salvaged": None if saved is None else {"file": str(target), "rows": saved},
    }  # fmt: skip


def _view(found: Examination) -> RenderableType:
    table = Table("what", "sound", "damaged", "the first of them")
    for column in table.columns[1:3]:
        column.justify = "right"
    table.add_row("the file", "-" if found.file else "yes", str(len(found.file) or "-"), escape("\n".join(found.file)))
    for part in found.contents.tables.values():
        first = [f"{_short(damage.id)}: {damage.problem}" for damage in part.damaged[:_SHOWN]]
        table.add_row(_NAMES.get(part.name, part.name), str(len(part.sound)), str(len(part.damaged) or "-"),
                      escape("\n".join(first)))  # fmt: skip
    runs = Table("run", "task", "what that means")
    for run, fate in found.fates.items():
        runs.add_row(run[:8], _task(found, run), escape("\n".join([_meaning(found, fate), *fate.problems])))
    return Group(table, runs) if found.fates else table


def _short(name: str) -> str:
    """An id whose run is cut to as much as listings show of it."""
    first, *rest = name.split("/")
    return "/".join([first[:8] if len(first) == 36 else first, *rest])


def _task(found: Examination, run: str) -> str:
    row = found.contents.runs.get(run)
    return "-" if row is None else str(row["task"])


def _meaning(found: Examination, fate: Fate) -> str:
    """What a person can still do with the run."""
    by = ", once --salvage has written a sound file" if _refused(found) else ""
    done = fate.state is not None and fate.state.get("status") == "done"
    match fate.outlook:
        case "whole":
            return f"done, can be read{by}" if done else f"can be resumed{by}"
        case "earlier":
            return f"can be resumed from an earlier step{by}"
        case "readable":
            return f"programs and verdicts can be read, cannot be resumed{by}"
        case "lost":
            return "lost"


def _refused(found: Examination) -> bool:
    """Whether the damage keeps the other commands from using the file as it is."""
    return bool(found.file or found.damaged("checkpoints") or found.damaged("writes"))


def _conclusion(found: Examination, db: Path) -> str:
    if found.sound():
        unverified = found.contents.unverified
        note = "" if not unverified else f" {unverified} verdicts have no receipt: they are unverified."
        return f"{db} is sound.{note}"
    if not found.contents.tables:
        return f"{db} is damaged, and nothing in it can be read. It was left as it is"
    if not _refused(found) and not any(found.damaged(name) for name in found.contents.tables):
        return f"{db} has lost something, see above; what is there can be used as it is"
    command = f"ksearch verify{db_option(db)} --salvage NEW.db"
    return f"{db} is damaged. It was left as it is; save what is sound with: {command}"


def _salvaged(target: Path, saved: dict[str, int] | None) -> str:
    if saved is None:
        return f"nothing was written to {target}: there is nothing to save"
    counts = ", ".join(f"{count} {_NAMES.get(name, name)}" for name, count in saved.items() if count)
    return f"wrote {target}: {counts or 'nothing'}. Look at it with: ksearch runs --db {target}"
