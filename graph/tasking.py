"""The commands around tasks: tasks, new, check, eval, and the picture of the graph."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.table import Table

from graph.build import graph
from graph.console import FAILED, USAGE, Json, complain, console, output, say, source
from graph.report import baseline_view
from graph.services import evaluator_for
from state.program import SUFFIX, Program, language_of
from state.settings import Settings
from state.verdict import Passed, Verdict, score_of, summary, voucher
from tasks.playbook import load_playbook
from tasks.sources import kernelbench
from tasks.task import Task, TaskError, find_task, shipped

SCAFFOLD = Path(__file__).parent.parent / "tasks" / "scaffold"
March = Annotated[str, typer.Option(help="-march for the compiler.")]
Device = Annotated[str, typer.Option(help="Where python programs run: cpu or cuda.")]
Language = Annotated[str | None, typer.Option(help="Language of the programs; default: the task's first.")]
Threads = Annotated[int | None, typer.Option(min=1, help="OpenMP threads; default: every core.")]


def tasks(as_json: Json = False) -> None:
    """List the shipped tasks."""
    rows = [_described(find_task(name)) for name in shipped()]
    table = Table("task", "what", "languages", "workloads", "playbook intents")
    for row in rows:
        table.add_row(row["name"], row["title"], ", ".join(row["languages"]), str(len(row["workloads"])),
                      str(row["intents"]))  # fmt: skip
    output(rows, table, as_json)


def _described(task: Task) -> dict[str, Any]:
    folders = [task.playbook_for(language) for language in task.languages]
    intents = sum(len(load_playbook(folder).intents) for folder in folders if folder.is_dir())
    return {"name": task.name, "title": task.title, "languages": list(task.languages), "intents": intents,
            "workloads": [workload.model_dump() for workload in task.workloads], "hash": task.hash}  # fmt: skip


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
    folder: Annotated[Path, typer.Argument(help="A task folder.")],
    language: Language = None,
    device: Device = "cpu",
    march: March = "native",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Validate a task folder and time its PyTorch formulations."""
    settings = _settings(str(folder), language=language, device=device, march=march, threads=threads)
    task = find_task(str(folder.resolve())).narrowed(language, settings.device)
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
    for row in rows:
        for name, reason in row.errors.items():
            complain(f"note: {task.reference}: {name} on {row.workload}: {reason}", 0)
    if not as_json:
        say(f"{folder} is a task: {task.prototype()} {intents} playbook intents")


def evaluate(
    task: Annotated[str, typer.Argument(help="A shipped task or a task folder.")],
    files: Annotated[list[Path], typer.Argument(help="Programs, or folders of them.", metavar="FILE...")],
    language: Language = None,
    device: Device = "cpu",
    march: March = "native",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Compile, check and time programs.

    Each is timed against the baseline; nothing is stored.
    """
    settings = _settings(task, language=language, device=device, march=march, threads=threads)
    found = find_task(task).narrowed(language, settings.device)
    programs = [(path, _program(path, found)) for path in _sources(files, found)]
    evaluator = evaluator_for(found, settings)
    verdicts: list[tuple[Path, Verdict]] = []
    try:
        evaluator.prepare([program for _, program in programs])
        for path, program in programs:
            verdicts.append((path, evaluator.evaluate(program)))
            if not as_json:
                say(f"{path.name}: {summary(verdicts[-1][1])}")
    finally:
        evaluator.close()
    rows = [
        {"file": str(path), "score": score_of(v), "receipt_id": voucher(v), **v.model_dump(mode="json")}
        for path, v in verdicts
    ]
    table = Table("file", "verdict", "J", "receipt", title=f"{found.name}: 100 is the strongest PyTorch formulation")
    for path, verdict in verdicts:
        table.add_row(path.name, verdict.kind.replace("_", " "), f"{score_of(verdict):.1f}", voucher(verdict))
    output(rows, table, as_json)
    if found.origin.startswith(kernelbench.ORIGIN) and not as_json:
        say(_fast(verdicts))


def _fast(verdicts: list[tuple[Path, Verdict]]) -> str:
    """KernelBench's measure, over the strongest baseline."""
    speedups = [score_of(verdict) / 100 if isinstance(verdict, Passed) else None for _, verdict in verdicts]
    shares = [f"fast_{p:g} {kernelbench.fast_p(speedups, p):.2f}" for p in (0.0, 1.0, 2.0)]
    return f"{', '.join(shares)} over {len(speedups)} program(s), against the strongest baseline"


def _settings(task: str, **choices: object) -> Settings:
    """Settings from options. Raises typer.BadParameter for a value that is none."""
    try:
        return Settings.model_validate({"task": task, **choices})
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"--{first['loc'][0]}: {first['msg']}") from None


def _sources(files: list[Path], task: Task) -> list[Path]:
    suffixes = {SUFFIX[language] for language in task.languages}
    found: list[Path] = []
    for path in files:
        inside = sorted(p for p in path.iterdir() if p.suffix in suffixes) if path.is_dir() else [path]
        if not inside:
            raise TaskError(f"{path}: holds no program ({', '.join(sorted(suffixes))})")
        found += inside
    return found


def _program(path: Path, task: Task) -> Program:
    text = source(path)
    taken = {*task.languages, "triton"} if task.call != "tensors" else task.languages
    language = language_of(path.name, text, taken)
    if language == "triton" and task.call != "tensors":  # one file in Python that returns its outputs, whatever it uses
        language = task.languages[0]
    if language is None:
        raise TaskError(f"{path}: here task {task.name} takes {', '.join(task.languages)} programs (see --language)")
    return Program(language=language, source=text)


def draw_graph(as_json: Json = False) -> None:
    """Print the state machine as Mermaid."""
    picture = graph.get_graph()
    if as_json:
        output(picture.to_json(), "", True)
    else:
        console.print(picture.draw_mermaid(), markup=False, highlight=False, soft_wrap=True)
