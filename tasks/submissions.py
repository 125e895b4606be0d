"""Programs as people have them: loose files, folders of files that belong together, submissions to other projects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from state.program import SUFFIX, Program, language_of
from tasks.joining import Parts, closure, joined_c, joined_python, roots
from tasks.task import Task, TaskError

_TEXTS = {".py", ".cpp", ".cc", ".cu", ".h", ".hpp", ".cuh", ".inl"}


def read_programs(path: Path, task: Task) -> list[tuple[str, Program]]:
    """The programs at a path, each with a name for listings; never empty.

    A file is one program, together with the files beside it that it includes or imports. In a folder every file of the
    task's languages is one that no other file there includes or imports. Raises TaskError.
    """
    if path.is_dir():
        return _folder(path, task)
    if path.suffix not in _TEXTS:
        raise TaskError(f"{path}: here task {task.name} takes {_taken(task)} (see --language)")
    return [(path.name, _loose(path.parent, path.name, _Beside(path.parent), task))]


def _folder(folder: Path, task: Task) -> list[tuple[str, Program]]:
    suffixes = {SUFFIX[language] for language in task.languages}
    parts = _parts(folder)
    names = [name for name in roots(parts) if Path(name).suffix in suffixes and "/" not in name]
    if not names:
        raise TaskError(f"{folder}: holds no program ({', '.join(sorted(suffixes))})")
    return [(name, _loose(folder, name, parts, task)) for name in names]


def _loose(folder: Path, name: str, parts: Parts, task: Task) -> Program:
    text = "\n".join(parts[needed] for needed in closure(name, parts))
    language = language_of(name, text, task.languages)
    if language is None:
        raise TaskError(f"{folder / name}: here task {task.name} takes {_taken(task)} programs (see --language)")
    if closure(name, parts) == [name]:
        return Program(language=language, source=parts[name])
    joined = joined_python(name, task.entry_point, parts) if name.endswith(".py") else joined_c([name], parts)
    return Program(language=language, source=joined)


def _taken(task: Task) -> str:
    return ", ".join(task.languages)


def _parts(folder: Path) -> dict[str, str]:
    """The texts below a folder by relative path; hidden folders are left out."""
    found = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.suffix in _TEXTS and path.is_file() and not any(part.startswith(".") for part in inside.parts):
            found[inside.as_posix()] = _text(path)
    return found


class _Beside(Parts):
    """The files of a folder, each read only when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(name) and (self._folder / name).is_file()

    def __getitem__(self, name: str) -> str:
        return _text(self._folder / name)

    def __iter__(self) -> Iterator[str]:
        return (path.name for path in self._folder.iterdir() if path.is_file())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: not a text file ({error})") from None
