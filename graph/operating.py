"""The commands of an operator, who answers a run's prompts: prompt and answer."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from graph.console import DB, DONE, FAILED, USAGE, Db, Json, RunId, complain, console, db_option, existing, say
from graph.running import Runs
from graph.searching import awaited_replies, concluded
from graph.watching import watcher_for
from nodes.replies import awaited_prompts, problems_of
from state.search import AwaitedPrompt


def prompt(
    run_id: RunId,
    out: Annotated[
        Path | None, typer.Option(help="A file for the prompt; a folder when several wait, or when it is one already.")
    ] = None,
    db: Db = DB,
    as_json: Json = False,
) -> None:
    """Print the prompts that wait for an operator's reply.

    Several are numbered. In a folder each is a file ID.prompt.md; replies beside them, ID.reply.md, are what
    `ksearch answer RUN --file FOLDER` takes.
    """
    with existing(db) as runs:
        found = runs.find(run_id)
        prompts, waits = _awaited(runs, found)
        run = runs.short(found) + db_option(db)
    if as_json:
        typer.echo(json.dumps(waits, indent=1))
        return
    if out is None:
        _print(prompts)
        complain(awaited_replies(waits, run), DONE)
        return
    for path in _written(out, prompts):
        say(f"wrote {path}")
    replies = f"beside it as ID.reply.md, then: ksearch answer {run} --file {out}"
    say(f"each reply {replies}" if out.is_dir() else f"then: ksearch answer {run} --file REPLY")


def answer(
    run_id: RunId,
    file: Annotated[
        list[str],
        typer.Option(help="A reply's file, or -; once for each prompt, in order. Or a folder with ID.reply.md files."),
    ],
    anyway: Annotated[bool, typer.Option("--anyway", help="Take replies that cannot be used: they count.")] = False,
    db: Db = DB,
) -> None:
    """Answer the prompts that wait, and go on.

    A reply that cannot be used is refused with the reason, and nothing is spent; --anyway takes it as any model's.
    """
    with existing(db) as runs:
        found = runs.find(run_id)
        prompts, _ = _awaited(runs, found)
        replies = _replies(file, prompts)
        if not anyway:
            _refuse_unusable(runs, found, prompts, replies)
        opening = f"going on with run {runs.short(found)} ..."
        with watcher_for(console, runs.archive.voucher, opening) as watch:
            given = {prompt.id: reply for prompt, reply in zip(prompts, replies, strict=True)}
            ended = runs.answer(found, given, watch)
        raise typer.Exit(concluded(runs, found, ended, db))


def _awaited(runs: Runs, run: str) -> tuple[list[AwaitedPrompt], dict[str, Any]]:
    """The prompts that wait, at least one, and the interrupt that asks for them."""
    waits, status = runs.interrupt(run), runs.status(run)
    if waits is None or status != "waiting for a reply":
        raise typer.Exit(complain(f"no prompt of run {runs.short(run)} waits for a reply (it is {status})", USAGE))
    asked = [one["id"] for one in waits["prompts"]]
    return [one for one in awaited_prompts(runs.state(run), runs.archive) if one.id in asked], waits


def _print(prompts: Sequence[AwaitedPrompt]) -> None:
    """The texts as they are; between several a line that no prompt has."""
    for number, one in enumerate(prompts, 1):
        if len(prompts) > 1:
            typer.echo(f"===== prompt {number} of {len(prompts)}: {one.id} =====")
        typer.echo(one.text, nl=not one.text.endswith("\n"))


def _written(out: Path, prompts: Sequence[AwaitedPrompt]) -> list[Path]:
    """The files that now hold the prompts."""
    try:
        if len(prompts) == 1 and not out.is_dir():
            out.parent.mkdir(parents=True, exist_ok=True)
            paths = [out]
        else:
            out.mkdir(parents=True, exist_ok=True)
            paths = [out / f"{one.id}.prompt.md" for one in prompts]
        for path, one in zip(paths, prompts, strict=True):
            path.write_text(one.text, encoding="utf-8")
    except OSError as error:
        raise typer.Exit(complain(f"--out {out}: cannot be written ({error.strerror})", FAILED)) from None
    return paths


def _replies(files: list[str], prompts: Sequence[AwaitedPrompt]) -> list[str]:
    """The texts of the replies, one for each prompt."""
    if len(files) == 1 and files[0] != "-" and Path(files[0]).is_dir():
        files = [str(Path(files[0]) / f"{one.id}.reply.md") for one in prompts]
    if len(files) != len(prompts):
        ids = ", ".join(one.id for one in prompts)
        counts = f"{len(prompts)} {'prompt waits' if len(prompts) == 1 else 'prompts wait'} ({ids})"
        message = f"{counts}, and --file was given {len(files)} times: say it once for each, in order, or name a folder"
        raise typer.Exit(complain(message, USAGE))
    if files.count("-") > 1:
        raise typer.Exit(complain("--file - can be given once: standard input holds one reply", USAGE))
    return [_read(file) for file in files]


def _read(file: str) -> str:
    try:
        data = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeError) as error:
        raise typer.Exit(complain(f"--file {file}: the reply cannot be read: {error}", USAGE)) from None
    return data


def _refuse_unusable(runs: Runs, run: str, prompts: Sequence[AwaitedPrompt], replies: list[str]) -> None:
    """Ends the command when a reply cannot be used, before anything of it is in the archive."""
    task = runs.services(run).task
    said = [
        f"the reply to {one.id} cannot be used: {problem}"
        for one, reply in zip(prompts, replies, strict=True)
        for problem in problems_of(reply, one, task)
    ]
    if said:
        nothing = "Nothing was spent. Correct it, or say --anyway to have it taken as it is"
        raise typer.Exit(complain("\n".join([*said, nothing]), USAGE))
