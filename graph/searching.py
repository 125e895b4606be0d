"""The commands that search: run and resume."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graph.console import DB, DONE, PARKED, Db, RunId, complain, console, db_option, existing, opened, say
from graph.report import label_of, result_view
from graph.running import Ended, Runs
from graph.services import options_of
from graph.watching import watcher_for
from nodes.models.named import ModelError, choices, model_named
from state.search import Best
from state.settings import Settings
from state.verdict import Verdict
from tasks.submissions import read_programs
from tasks.task import LIBRARY, Task, TaskError, find_task


def run(
    task: Annotated[str, typer.Argument(help="A shipped task (see `ksearch tasks`) or a task folder.", metavar="TASK")],
    model: Annotated[str | None, typer.Option(help="playbook, operator, openai:NAME or google_genai:NAME.")] = None,
    world_model: Annotated[str | None, typer.Option(help="Model that edits the tree, if another.")] = None,
    coder: Annotated[str | None, typer.Option(help="Model that writes programs, if another.")] = None,
    switch_at: Annotated[
        tuple[int, str] | None, typer.Option(help="After so many evaluations this model plays both roles.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="OpenAI-compatible server for openai models.")] = None,
    temperature: Annotated[float | None, typer.Option(help="For models that take it.")] = None,
    reasoning_effort: Annotated[str | None, typer.Option(help="low, medium, high: for models that take it.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="Length of one reply at most.")] = None,
    call_timeout: Annotated[float, typer.Option(help="Seconds that a model's server may stay silent.")] = 600.0,
    prompts: Annotated[Path | None, typer.Option(help="Folder of templates that replace shipped ones.")] = None,
    language: Annotated[str | None, typer.Option(help="Language of the programs; default: the task's first.")] = None,
    budget: Annotated[int, typer.Option(min=1, help="B: verdicts to spend on attempts.")] = 120,
    stagnation: Annotated[int, typer.Option(min=1, help="K: attempts without improvement per intent.")] = 7,
    min_improvement: Annotated[float, typer.Option(min=0, help="Relative gain below which scores tie.")] = 0.02,
    max_difficulty: Annotated[int, typer.Option(min=1, max=5, help="Intents that are harder wait (1 to 5).")] = 5,
    max_minutes: Annotated[float | None, typer.Option(help="Cap on minutes in models and evaluator.")] = None,
    max_calls: Annotated[int | None, typer.Option(min=1, help="Cap on model calls.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Cap on tokens, in and out.")] = None,
    seed_program: Annotated[Path | None, typer.Option(help="A program to start from, or a folder with one.")] = None,
    approve: Annotated[str, typer.Option(help="Edits that wait for you: never, prunes or edits.")] = "never",
    device: Annotated[str, typer.Option(help="Where python programs run: cpu or cuda.")] = "cpu",
    march: Annotated[str, typer.Option(help="-march for the compiler.")] = "native",
    threads: Annotated[int | None, typer.Option(min=1, help="OpenMP threads; default: every core.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="M: programs that one attempt samples.")] = 1,
    evaluator: Annotated[str, typer.Option(help="local, or spool: files for a machine out of reach.")] = "local",
    spool: Annotated[Path | None, typer.Option(help="Folder for the requests of --evaluator spool.")] = None,
    hardware: Annotated[str | None, typer.Option(help="What the machine behind the spool is called.")] = None,
    db: Db = DB,
) -> None:
    """Search for a faster program.

    Stop it at any time (Ctrl-C) and go on with `ksearch resume`.
    """
    found = find_task(task).narrowed(language, "cuda" if device == "cuda" else "cpu")
    settings = Settings.model_validate(
        {
            "task": task if found.folder.parent == LIBRARY else str(found.folder),
            "model": model or _default_model(found, world_model, coder),
            "world_model": world_model,
            "coder": coder,
            "switch_at": None if switch_at is None else switch_at[0],
            "switch_to": None if switch_at is None else switch_at[1],
            "base_url": base_url,
            "temperature": temperature,
            "reasoning_effort": reasoning_effort,
            "max_output_tokens": max_output_tokens,
            "call_timeout_s": call_timeout,
            "prompts": None if prompts is None else str(prompts.resolve()),
            "language": language,
            "device": device,
            "budget": budget,
            "stagnation": stagnation,
            "min_improvement": min_improvement,
            "max_difficulty": max_difficulty,
            "max_minutes": max_minutes,
            "max_calls": max_calls,
            "max_tokens": max_tokens,
            "seed_program": None if seed_program is None else _seed(seed_program, found),
            "approve": approve,
            "march": march,
            "threads": threads,
            "samples": samples,
            "evaluator": evaluator,
            "spool": None if spool is None else str(spool.resolve()),
            "hardware": hardware,
        }
    )
    for name in settings.models:
        model_named(name, found, options_of(settings))
    with opened(db) as runs:
        run_id = runs.new_id()
        runs.prepare(run_id, settings)
        say(f"run {runs.short(run_id)}: task {found.name}, model {settings.model}, budget {budget}, database {db}")
        note = label_of(settings)
        if note is not None and not console.is_terminal:
            say(note)
        with watcher_for(console, runs.archive.voucher, "measuring the PyTorch baselines ...") as watch:
            ended = runs.start(settings, watch, run_id)
        raise typer.Exit(concluded(runs, run_id, ended, db))


def resume(run_id: RunId, db: Db = DB) -> None:
    """Go on with a run where it stopped.

    Nothing that was paid for is paid again.
    """
    with existing(db) as runs:
        found = runs.find(run_id)
        short = runs.short(found)
        if runs.status(found) == "done":
            say(f"run {short} is done already")
        raise typer.Exit(go_on(runs, found, db))


def go_on(runs: Runs, run_id: str, db: Path) -> int:
    """The run is resumed, and what came of it is on the screen; returns the exit code."""
    with watcher_for(console, runs.archive.voucher, f"going on with run {runs.short(run_id)} ...") as watch:
        ended = runs.resume(run_id, watch)
    return concluded(runs, run_id, ended, db)


def concluded(runs: Runs, run_id: str, ended: Ended, db: Path) -> int:
    """The result, or how to go on, is on the screen; returns the exit code."""
    short = runs.short(run_id)
    option = db_option(db)
    if ended.status == "done":
        console.print(result_view(ended.state, best_verdict(runs, ended), runs.archive.voucher))
        say(f"The program: ksearch best {short}{option}    Everything about it: ksearch show {short}{option}")
        return DONE
    if ended.status == "waiting for a reply" and ended.interrupt is not None:
        complain(awaited_replies(ended.interrupt, short + option), PARKED)
    elif ended.status == "waiting":
        count = len(ended.interrupt["action_requests"]) if ended.interrupt else 0
        noun = "1 tree edit waits" if count == 1 else f"{count} tree edits wait"
        complain(f"{noun} for your word; nothing is lost. Go on with: ksearch approve {short}{option}", PARKED)
    elif ended.status == "parked" and ended.interrupt is not None:
        if Settings.model_validate(ended.state["settings"]).evaluator == "spool":
            said = ended.interrupt["reason"].replace("collect RUN DIR2", f"collect {short} DIR2{option}")
            return complain(f"no budget was spent and nothing is lost: {said}", PARKED)
        complain(
            f"the evaluator is away ({ended.interrupt['reason']}); no budget was spent and nothing is lost. "
            f"Go on at this very evaluation with: ksearch resume {short}{option}", PARKED,
        )  # fmt: skip
    elif ended.status == "full":
        spent = ended.state.get("evaluations", 0)
        complain(
            f"{db}: cannot be written ({ended.reason}); the run stopped. Everything up to the step in flight is kept "
            f"({spent} evaluations), nothing is lost. Make room on the disk, then go on with: "
            f"ksearch resume {short}{option}", PARKED,
        )  # fmt: skip
    else:
        complain(f"stopped; nothing is lost. Go on with: ksearch resume {short}{option}", PARKED)
    return PARKED


def awaited_replies(waits: dict[str, Any], run: str) -> str:
    """What to do about the prompts that wait; the run's id is followed by the option for its database."""
    prompts = waits["prompts"]
    role, count = prompts[0]["role"].replace("_", " "), len(prompts)
    said = f"a prompt to the {role} waits" if count == 1 else f"{count} prompts to the {role} wait"
    wrong = "" if waits["problem"] is None else f"the last answer was not taken: {waits['problem']}.\n"
    files = " ".join(["--file REPLY"] * count) if count <= 3 else f"--file REPLY, {count} times and in order"
    return (
        f"{wrong}{said} for a reply; nothing is lost.\nRead: ksearch prompt {run}    or as files: ksearch prompt "
        f"{run} --out DIR\nAnswer, and go on: ksearch answer {run} {files}"
    )


def best_verdict(runs: Runs, ended: Ended) -> Verdict | None:
    """The verdict behind the best score: its confirmation."""
    if ended.state.get("best") is None:
        return None
    best = Best.model_validate(ended.state["best"])
    verdicts = [v for purpose, v in runs.archive.verdicts_of(best.program) if purpose in ("confirm", "seed")]
    return verdicts[-1] if verdicts else None


def _seed(path: Path, task: Task) -> str:
    """The one program at this path. Raises TaskError."""
    programs = read_programs(path, task)
    if len(programs) > 1:
        names = ", ".join(name for name, _ in programs[:5])
        raise TaskError(f"{path}: a run starts from one program, and here are {len(programs)} ({names})")
    return programs[0][1].source


def _default_model(task: Task, world_model: str | None, coder: str | None) -> str:
    """The playbook when the task has one; otherwise the person has to choose."""
    if world_model and coder:
        return coder
    if task.playbook.is_dir():
        return "playbook"
    raise ModelError(
        f"task {task.name!r} has no playbook for {task.languages[0]} and no model was chosen; "
        f"say --model with {choices(task)}"
    )
