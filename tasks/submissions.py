"""Programs as people have them: loose files, folders of files that belong together, submissions to other projects."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable
from pathlib import Path

from state.program import SUFFIX, Language, Program, language_of
from tasks.flashinfer.data import loaded
from tasks.flashinfer.solutions import is_solution, program_of
from tasks.joining import Parts, closure, joined_c, joined_python, roots
from tasks.task import Task, TaskError

_TEXTS = {".py", ".cpp", ".cc", ".cu", ".h", ".hpp", ".cuh", ".inl"}


def read_programs(path: Path, task: Task) -> list[tuple[str, Program]]:
    """The programs at a path, each with a name for listings; never empty.

    A file is one program, together with the files beside it that it includes or imports. In a folder every file of the
    task's languages is one that no other file there includes or imports. A JSON file is a FlashInfer-Bench solution.
    Raises TaskError.
    """
    if path.is_dir():
        return _folder(path, task)
    if path.suffix == ".json":
        return [(path.name, program_of(path, task))]
    if path.suffix not in _TEXTS:
        raise TaskError(f"{path}: here task {task.name} takes {_taken(task)} programs (see --language)")
    parts = ChainMap({path.name: text_of(path)}, _Beside.inside(path.parent), _Beside.of(task))
    return [(path.name, _loose(path.parent, path.name, parts, task))]


def _folder(folder: Path, task: Task) -> list[tuple[str, Program]]:
    suffixes = {SUFFIX[language] for language in task.languages}
    parts = _parts(folder)
    names = [name for name in roots(parts) if Path(name).suffix in suffixes and "/" not in name]
    solutions = [file for file in sorted(folder.glob("*.json")) if is_solution(loaded(file))]
    if not names and not solutions:
        raise TaskError(f"{folder}: holds no program ({', '.join(sorted(suffixes))})")
    loose = [(name, _loose(folder, name, ChainMap(parts, _Beside.of(task)), task)) for name in names]
    return loose + [(file.name, program_of(file, task)) for file in solutions]


def _language(name: str, text: str, task: Task) -> Language | None:
    """Of a file; one that returns its outputs is in Python, whatever it uses."""
    if task.call == "tensors":
        return language_of(name, text, task.languages)
    found = language_of(name, text, {*task.languages, "triton"})
    return task.languages[0] if found == "triton" else found


def _loose(folder: Path, name: str, parts: Parts, task: Task) -> Program:
    text = "\n".join(parts[needed] for needed in closure(name, parts))
    language = _language(name, text, task)
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
            found[inside.as_posix()] = text_of(path)
    return found


class _Beside(dict[str, str]):
    """The files of a folder, each read only when it is asked for."""

    def __init__(self, files: Callable[[str], Path | None]) -> None:
        super().__init__()
        self._files = files

    @classmethod
    def inside(cls, folder: Path) -> _Beside:
        """All files below a folder."""
        return cls(lambda name: folder / name)

    @classmethod
    def of(cls, task: Task) -> _Beside:
        """The Python modules that the task brings along, by their bare names: what a submission may import upstream."""
        own = {Path(name).name: task.folder / name for name in task.files if name.endswith(".py")}
        return cls(own.get)

    def __contains__(self, name: object) -> bool:
        path = self._files(name) if isinstance(name, str) and name else None
        return path is not None and path.is_file()

    def __missing__(self, name: str) -> str:
        path = self._files(name)
        if path is None or not path.is_file():
            raise KeyError(name)
        self[name] = text = text_of(path)
        return text


def text_of(path: Path) -> str:
    """What a file says. Raises TaskError when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise TaskError(f"{path}: not a text file ({error})") from None
