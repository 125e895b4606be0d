"""What the commands share: options, exit codes, reading and writing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console, RenderableType

from graph.checkpointer import DEFAULT_DB
from graph.running import Runs, UnknownRun
from state.database import ArchiveError
from state.settings import Settings

DONE, FAILED, USAGE, PARKED = 0, 1, 2, 75
"""Exit codes; 75 is the system's EX_TEMPFAIL: try again later."""

Db = Annotated[Path, typer.Option("--db", envvar="KSEARCH_DB", help="The SQLite file that holds the runs.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
RunId = Annotated[str, typer.Argument(help='Id of the run, its first characters, or "last".', metavar="RUN")]
March = Annotated[str, typer.Option(help="-march for the compiler.")]
Device = Annotated[str, typer.Option(help="Where python programs run: cpu or cuda.")]
Language = Annotated[str | None, typer.Option(help="Language of the programs; default: the task's first.")]
Threads = Annotated[int | None, typer.Option(min=1, help="OpenMP threads; default: every core.")]
DB = DEFAULT_DB

console = Console()
if not console.is_terminal:
    console = Console(width=120)
errors = Console(stderr=True)


def complain(message: str, code: int) -> int:
    """The message is on standard error; returns the exit code."""
    errors.print(f"ksearch: {message}", markup=False, highlight=False, soft_wrap=True)
    return code


def say(text: str) -> None:
    """A plain line on standard output."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def output(value: Any, view: RenderableType, as_json: bool) -> None:
    """The value as JSON, or its view."""
    if as_json:
        typer.echo(json.dumps(value, indent=1))
    else:
        console.print(view)


def db_option(database: Path) -> str:
    """The option that a printed command needs to mean the same database; empty for the default one."""
    return "" if database == DB else f" --db {database}"


def settings_of(task: str, **choices: object) -> Settings:
    """Settings from options. Raises typer.BadParameter for a value that is none."""
    try:
        return Settings.model_validate({"task": task, **choices})
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"--{first['loc'][0]}: {first['msg']}") from None


@contextmanager
def existing(database: Path) -> Iterator[Runs]:
    """The runs of a database that must exist already."""
    if not database.exists():
        raise ArchiveError(f"{database}: no such database; `ksearch run TASK` makes one, --db names another")
    with opened(database) as runs:
        yield runs


@contextmanager
def opened(database: Path) -> Iterator[Runs]:
    """The runs of a database, made when it does not exist; closed afterwards whatever happens."""
    runs = Runs(database)
    try:
        yield runs
    except UnknownRun as error:
        raise typer.Exit(complain(str(error), USAGE)) from None
    finally:
        runs.close()
