"""The commands around tasks: tasks, new, check, and the picture of the graph."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from graph.build import graph
from graph.console import (
    FAILED,
    USAGE,
    Device,
    Json,
    Language,
    March,
    Threads,
    complain,
    console,
    output,
    say,
    settings_of,
)
from graph.report import baseline_view
from graph.services import evaluator_for
from tasks.needs import TOOLS, devices, packages
from tasks.playbook import load_playbook
from tasks.sources import SOURCES
from tasks.task import Task, find_task, shipped

OTHERS = {
    "gpumode": ("gpumode:PATH", "a problem folder of a gpu-mode/reference-kernels checkout"),
    "flashinfer": ("flashinfer:DEFINITION", "a definition of a FlashInfer-Bench data set"),
    "kernelbench": ("kernelbench:LEVEL/ID", "a problem of KernelBench"),
}
"""How a problem of another source is named, and what it is."""
SCAFFOLD = Path(__file__).parent.parent / "tasks" / "scaffold"


def tasks(as_json: Json = False) -> None:
    """List the shipped tasks, and how problems of other sources are named."""
    rows = [_described(find_task(name)) for name in shipped()]
    output(rows, tasks_view(rows), as_json)


def tasks_view(rows: list[dict[str, Any]]) -> RenderableType:
    """One row per task; below it what its columns do not say."""
    packaged = any(_packages(row["packages"]) for row in rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("task", overflow="fold")
    for name in ("what", "source", "languages (intents)", "workloads", *(["packages"] if packaged else [])):
        table.add_column(name)
    for row in rows:
        table.add_row(row["name"], row["title"], row["origin"], _languages(row), _counts(row["devices"]),
                      *([_packages(row["packages"]) or "-"] if packaged else []))  # fmt: skip
    needs = "; ".join(f"{language} {' and '.join(tools)}" for language, tools in TOOLS.items() if tools)
    elsewhere = [OTHERS.get(prefix, (f"{prefix}:NAME", "")) for prefix in SOURCES]
    return Group(
        table,
        Text("In brackets: the ideas in the playbook, for --model playbook. GPU: one NVIDIA GPU."),
        Text(f"Besides torch a language needs: {needs}."),
        Text("Also a task: a folder, ./FOLDER (ksearch new NAME makes one)"),
        *(Text(f"             {form}, {what}".removesuffix(", ")) for form, what in elsewhere),
    )


def _described(task: Task) -> dict[str, Any]:
    books = {language: load_playbook(task.playbook_for(language)) for language in task.languages
             if task.playbook_for(language).is_dir()}  # fmt: skip
    playbook = {language: len(book.intents) for language, book in books.items()}
    return {
        "name": task.name,
        "title": task.title,
        "origin": task.origin or "K-Search",
        "languages": list(task.languages),
        "tools": {language: list(TOOLS[language]) for language in task.languages},
        "devices": devices(task),
        "packages": asdict(packages(task)),
        "intents": sum(playbook.values()),
        "playbook": playbook,
        "workloads": [workload.model_dump() for workload in task.workloads],
        "hash": task.hash,
    }


def _counts(workloads: dict[str, int]) -> str:
    return ", ".join(f"{count} {'CPU' if device == 'cpu' else 'GPU'}" for device, count in workloads.items())


def _languages(row: dict[str, Any]) -> str:
    ideas = row["playbook"]
    return ", ".join(f"{language} ({ideas[language]})" if language in ideas else language
                     for language in row["languages"])  # fmt: skip


def _packages(found: dict[str, Sequence[str]]) -> str:
    return ", ".join([*found["needed"], *(f"{name} (optional)" for name in found["optional"])])


def new(name: Annotated[str, typer.Argument(help="Name of the task, and of its folder here.")]) -> None:
    """Make a folder for a task of your own.

    It holds a small task that runs, to be changed.
    """
    folder = Path(name)
    entry_point = re.sub(r"\W", "_", folder.name)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", folder.name):
        raise typer.Exit(complain(f"{folder.name!r} cannot name a task: use letters, digits, - and _", USAGE))
    if folder.exists():
        raise typer.Exit(complain(f"{folder} exists already; nothing was changed", USAGE))
    try:
        shutil.copytree(SCAFFOLD, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for file in folder.rglob("*.*"):
            text = file.read_text(encoding="utf-8").replace('name = "my_kernel"', f'name = "{folder.name}"')
            file.write_text(text.replace("my_kernel", entry_point), encoding="utf-8")
    except OSError as error:
        raise typer.Exit(complain(f"{folder}: cannot be written ({error.strerror})", FAILED)) from None
    say(f"made {folder}; change task.toml and reference.py, then: ksearch check {name}; ksearch run ./{name}")


def check(
    name: Annotated[str, typer.Argument(help="A task folder, or whatever else `run` takes.", metavar="TASK")],
    language: Language = None,
    device: Device = "cpu",
    march: March = "native",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Validate a task and time its PyTorch formulations."""
    settings = settings_of(name, language=language, device=device, march=march, threads=threads)
    task = find_task(name).narrowed(language, settings.device)
    intents = 0
    if task.playbook.is_dir():
        book = load_playbook(task.playbook)
        intents = len(book.intents)
        for intent in book.intents:
            for attempt in range(1, len(intent.variants) + 1):
                book.program(intent, {}, attempt)
    evaluator = evaluator_for(task, settings)
    try:
        rows = evaluator.baseline()
    finally:
        evaluator.close()
    plain = {**_described(task), "baseline": [row.model_dump(mode="json") for row in rows]}
    output(plain, baseline_view(rows), as_json)
    failed: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for formulation, reason in row.errors.items():
            failed.setdefault((formulation, reason), []).append(row.workload)
    for (formulation, reason), workloads in failed.items():
        where = workloads[0] if len(workloads) == 1 else f"{len(workloads)} workloads"
        complain(f"note: {task.reference}: {formulation} on {where}: {reason}", 0)
    if not as_json:
        say(f"{name} is a task: {task.prototype()} {intents} playbook intents")


def draw_graph(as_json: Json = False) -> None:
    """Print the state machine as Mermaid."""
    picture = graph.get_graph()
    if as_json:
        output(picture.to_json(), "", True)
    else:
        console.print(picture.draw_mermaid(), markup=False, highlight=False, soft_wrap=True)
