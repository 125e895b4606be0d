"""Programs as people have them: loose files and folders of them."""

from __future__ import annotations

from pathlib import Path

from state.program import SUFFIX, Program, language_of
from tasks.task import Task, TaskError


def read_programs(path: Path, task: Task) -> list[tuple[str, Program]]:
    """The programs at a path, each with a name for listings; never empty. Raises TaskError."""
    if not path.is_dir():
        return [(path.name, _program(path, task))]
    suffixes = {SUFFIX[language] for language in task.languages}
    inside = sorted(file for file in path.iterdir() if file.suffix in suffixes)
    if not inside:
        raise TaskError(f"{path}: holds no program ({', '.join(sorted(suffixes))})")
    return [(file.name, _program(file, task)) for file in inside]


def _program(path: Path, task: Task) -> Program:
    text = _text(path)
    language = language_of(path.name, text, task.languages)
    if language is None:
        raise TaskError(f"{path}: here task {task.name} takes {', '.join(task.languages)} programs (see --language)")
    return Program(language=language, source=text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: not a text file ({error})") from None
