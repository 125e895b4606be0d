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

from graph.console import DB, DONE, FAILED, PARKED, USAGE, Db, Json, RunId, complain, console, db_option, existing, say
from graph.running import Runs
from graph.searching import concluded
from graph.watching import watcher_for
from state.approval import apply_answer
from state.edits import EDIT
from state.search import Pending

_CHOICES = {"a": "approve", "e": "edit", "r": "reject"}


def approve(
    run_id: RunId,
    answer: Annotated[
        str | None, typer.Argument(help='For scripts: {"pending": ..., "decisions": [...]} as JSON, a file, or -.')
    ] = None,
    db: Db = DB,
    as_json: Json = False,
) -> None:
    """Approve, change or reject the tree edits that wait, and go on.

    In a terminal it asks again whenever new edits wait. With --json and no answer, the waiting edits are
    printed and nothing is decided.
    """
    with existing(db) as runs:
        found = runs.find(run_id)
        request = _waiting(runs, found)
        if answer is None and as_json:
            typer.echo(json.dumps(request, indent=1))
            return
        while True:
            reply = _asked(request, runs.short(found) + db_option(db)) if answer is None else _read(answer)
            try:
                apply_answer(Pending.model_validate(runs.state(found)["pending"]), reply)
            except ValueError as error:
                raise typer.Exit(complain(f"the answer was refused, nothing was applied: {error}", USAGE)) from None
            with watcher_for(console, runs.archive.voucher) as watch:
                ended = runs.answer(found, reply, watch)
            if ended.interrupt is None or ended.status != "waiting" or answer is not None or not sys.stdin.isatty():
                break
            request = ended.interrupt
        raise typer.Exit(concluded(runs, found, ended, db))


def _waiting(runs: Runs, run: str) -> dict[str, Any]:
    """The request that waits for a person's word."""
    request = runs.interrupt(run)
    if request is None or request["kind"] != "approval":
        short = runs.short(run)
        raise typer.Exit(complain(f"no edits of run {short} wait for approval (it is {runs.status(run)})", USAGE))
    return request


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


def _asked(request: dict[str, Any], run: str) -> dict[str, Any]:
    """The decisions that a person types, one edit after the other."""
    actions = request["action_requests"]
    try:
        decisions = [_decision(action, f"({number}/{len(actions)})") for number, action in enumerate(actions, 1)]
    except typer.Abort:
        message = f"\nnothing was decided; come back with: ksearch approve {run}"
        raise typer.Exit(complain(message, PARKED)) from None
    return {"pending": request["pending"], "decisions": decisions}


def _decision(action: dict[str, Any], place: str) -> dict[str, Any]:
    say(f"{place} {action['description']}")
    if action["args"].get("description"):
        say(f"      {action['args']['description']}")
    choice = ""
    while choice not in _CHOICES:
        choice = typer.prompt("      approve, edit or reject? [a/e/r]", default="a").strip().lower()[:1]
    if choice == "r":
        why = typer.prompt("      why (shown to the world model)", default="", show_default=False)
        return {"type": "reject", "message": why}
    if choice == "e":
        return {"type": "edit", "edited_action": {"name": action["name"], "args": _edited(action)}}
    return {"type": "approve"}


def _edited(action: dict[str, Any]) -> dict[str, Any]:
    """The edit's fields after a person has changed some; asked again until they make an edit."""
    while True:
        args = dict(action["args"])
        for change in typer.prompt("      field=value, more with ; (e.g. priority=0.9)").split(";"):
            name, _, value = (part.strip() for part in change.partition("="))
            try:
                args[name] = json.loads(value)
            except ValueError:
                args[name] = value
        try:
            EDIT.validate_python({**args, "kind": action["name"]})
        except ValidationError as error:
            say(f"      {_first(error)}; fields: {', '.join(action['args'])}")
        else:
            return args


def _first(error: ValidationError) -> str:
    """The first thing that is wrong, with its place."""
    first = error.errors()[0]
    return ": ".join(filter(None, [".".join(map(str, first["loc"][1:])), first["msg"]]))


def edit(
    run_id: RunId,
    edits: Annotated[list[str], typer.Argument(help='e.g. {"kind": "update", "node": "n3", "priority": 0.9}')],
    db: Db = DB,
) -> None:
    """Change the tree yourself: re-rank, insert, prune, revive.

    The edits are applied, marked as a person's, when the next intent is about to be selected.
    """
    parsed: list[dict[str, Any]] = []
    for text in edits:
        try:
            parsed.append(EDIT.validate_json(text).model_dump(mode="json"))
        except ValidationError as error:
            raise typer.Exit(complain(f"{text}: {_first(error)}", USAGE)) from None
    with existing(db) as runs:
        found = runs.find(run_id)
        short, state = runs.short(found), runs.state(found)
        if "tree" not in state or state["status"] == "done":
            why = "is done" if "tree" in state else "has only just begun"
            raise typer.Exit(complain(f"run {short} {why}: its tree cannot be edited", USAGE))
        runs.edit(found, parsed)
    say(f"{len(parsed)} {'edit is' if len(parsed) == 1 else 'edits are'} kept for the next selection of run {short}")


def studio(
    run_id: RunId,
    url: Annotated[str, typer.Option(help="Address of `make studio`.")] = "http://127.0.0.1:2024",
    db: Db = DB,
) -> None:
    """Make a run known to a running `make studio`.

    It can then be seen, stepped, approved and resumed there.
    """
    with existing(db) as runs:
        found = runs.find(run_id)
        ours = bool(runs.state(found))
    try:
        theirs = asyncio.run(_registered(url, found))
    except httpx.HTTPError as error:
        raise typer.Exit(
            complain(f"no server answers at {url} ({error}); start it with: make studio", FAILED)
        ) from None
    if ours and not theirs:
        raise typer.Exit(
            complain(f"the server at {url} uses another database; start it with: "
                     f"KSEARCH_DB={db.resolve()} make studio", FAILED)
        )  # fmt: skip
    say(f"thread {found} is known at {url}; open https://smith.langchain.com/studio/?baseUrl={url} and choose it")
    raise typer.Exit(DONE)


async def _registered(url: str, run: str) -> bool:
    """Makes the run's thread known; returns whether the server finds a state for it."""
    client = get_client(url=url)
    await client.threads.create(thread_id=run, graph_id="ksearch", if_exists="do_nothing")
    state = await client.threads.get_state(run)
    return bool(state["values"])
