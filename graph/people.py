"""The commands of a person who steers a run: approve, edit, studio."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer
from langgraph_sdk import get_client
from pydantic import ValidationError

from graph.console import DB, DONE, FAILED, USAGE, Db, Json, RunId, complain, console, existing, say
from graph.searching import concluded
from graph.watching import watcher_for
from state.approval import apply_answer
from state.edits import EDIT
from state.search import Pending


def approve(
    run_id: RunId,
    answer: Annotated[
        str | None, typer.Argument(help='For scripts: {"pending": ..., "decisions": [...]} as JSON, a file, or -.')
    ] = None,
    db: Db = DB,
    as_json: Json = False,
) -> None:
    """Approve, change or reject the tree edits that wait, and go on.

    With --json and no answer, the waiting edits are printed and nothing is decided.
    """
    with existing(db) as runs:
        found = runs.find(run_id)
        request = runs.interrupt(found)
        if request is None or request["kind"] != "approval":
            raise typer.Exit(complain(f"no edits of run {found[:8]} wait for approval", USAGE))
        if answer is None and as_json:
            typer.echo(json.dumps(request, indent=1))
            return
        reply = _asked(request) if answer is None else _read(answer)
        try:
            apply_answer(Pending.model_validate(runs.state(found)["pending"]), reply)
        except ValueError as error:
            raise typer.Exit(complain(f"the answer was refused, nothing was applied: {error}", USAGE)) from None
        with watcher_for(console) as watch:
            ended = runs.answer(found, reply, watch)
        raise typer.Exit(concluded(runs, found, ended, db))


def _read(answer: str) -> dict[str, Any]:
    """The JSON object in the argument itself, in the file that it names, or on standard input."""
    try:
        text = sys.stdin.read() if answer == "-" else answer
        if not text.lstrip().startswith("{"):
            text = Path(answer).read_text(encoding="utf-8")
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise typer.Exit(complain(f"the answer cannot be read: {error}", USAGE)) from None
    if not isinstance(value, dict):
        raise typer.Exit(complain("the answer must be a JSON object with the key decisions", USAGE))
    return value


def _asked(request: dict[str, Any]) -> dict[str, Any]:
    """The decisions that a person types, one edit after the other."""
    decisions: list[dict[str, Any]] = []
    for number, action in enumerate(request["action_requests"], 1):
        say(f"({number}/{len(request['action_requests'])}) {action['description']}")
        choice = typer.prompt("approve, edit V, or reject? [a/e/r]", default="a").strip().lower()[:1]
        if choice == "r":
            decisions.append({"type": "reject", "message": typer.prompt("why (shown to the world model)", default="")})
        elif choice == "e":
            priority = typer.prompt("V", default=action["args"].get("priority", 0.5), type=float)
            edited = {"name": action["name"], "args": {**action["args"], "priority": priority}}
            decisions.append({"type": "edit", "edited_action": edited})
        else:
            decisions.append({"type": "approve"})
    return {"pending": request["pending"], "decisions": decisions}


def edit(
    run_id: RunId,
    edits: Annotated[list[str], typer.Argument(help='e.g. {"kind": "update", "node": "n3", "priority": 0.9}')],
    db: Db = DB,
) -> None:
    """Change the tree yourself: re-rank (update), insert, prune, or revive a pruned intent.

    The edits are applied, marked as a person's, when the next intent is about to be selected.
    """
    parsed: list[dict[str, Any]] = []
    for text in edits:
        try:
            parsed.append(EDIT.validate_json(text).model_dump(mode="json"))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise typer.Exit(complain(f"{text}: {place}: {first['msg']}", USAGE)) from None
    with existing(db) as runs:
        found = runs.find(run_id)
        runs.edit(found, parsed)
    say(f"{len(parsed)} edits are kept for the next selection of run {found[:8]}")


def studio(
    run_id: RunId,
    url: Annotated[str, typer.Option(help="Address of `make studio`.")] = "http://127.0.0.1:2024",
    db: Db = DB,
) -> None:
    """Make a run known to a running `make studio`, so that it can be seen, stepped and resumed there."""
    with existing(db) as runs:
        found = runs.find(run_id)
    try:
        asyncio.run(_register(url, found))
    except httpx.HTTPError as error:
        raise typer.Exit(
            complain(f"no server answers at {url} ({error}); start it with: make studio", FAILED)
        ) from None
    say(f"thread {found} is known at {url}; open https://smith.langchain.com/studio/?baseUrl={url} and choose it")
    raise typer.Exit(DONE)


async def _register(url: str, run: str) -> None:
    client = get_client(url=url)
    await client.threads.create(thread_id=run, graph_id="ksearch", if_exists="do_nothing")
