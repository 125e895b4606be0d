"""Several source files that belong together become one text: headers are inlined, Python modules are embedded."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TypeAlias

Parts: TypeAlias = Mapping[str, str]
"""Text of each file by its path below a common folder, with forward slashes."""

PACKAGE = "ksearch_program"
"""Package in which the modules of a joined Python program lie."""

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)".*$', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b.*$", re.MULTILINE)

_LOADER = '''"""Several files as one module; `{entry}` is where it begins."""

import importlib
import importlib.abc
import importlib.util
import sys

_FILES = {{
{files}
}}
"""Text of each file by the name of its module."""
_PACKAGES = {packages!r}


class _Embedded(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Imports the files above, as parts of the package {package} and by their own names."""

    def _own(self, name):
        own = "" if name == "{package}" else name.removeprefix("{package}.")
        return own if own in _FILES or own in _PACKAGES else None

    def find_spec(self, name, path=None, target=None):
        own = self._own(name)
        return None if own is None else importlib.util.spec_from_loader(name, self, is_package=own in _PACKAGES)

    def is_package(self, name):
        return self._own(name) in _PACKAGES

    def get_filename(self, name):
        return f"<embedded>/{{self._own(name)}}.py"

    def get_data(self, path):
        return _FILES.get(path.removeprefix("<embedded>/").removesuffix(".py"), "").encode()


sys.meta_path.insert(0, _Embedded())
'''


def used(path: str, parts: Parts) -> set[str]:
    """The other files that this one includes or imports, directly."""
    found = _imported(path, parts) if path.endswith(".py") else set(_included(path, parts))
    return found - {path}


def closure(path: str, parts: Parts) -> list[str]:
    """The file and all that it needs of the others, sorted, itself last."""
    known, waiting = {path}, [path]
    while waiting:
        fresh = used(waiting.pop(), parts) - known
        known |= fresh
        waiting += sorted(fresh)
    return [*sorted(known - {path}), path]


def roots(parts: Parts) -> list[str]:
    """The files that no other file includes or imports, sorted."""
    needed = {name for path in parts for name in used(path, parts)}
    return [path for path in sorted(parts) if path not in needed]


def joined_c(paths: list[str], parts: Parts) -> str:
    """C++ or CUDA files one after the other, each quoted #include of a known file replaced by its text, once."""
    done: set[str] = set()
    return "\n".join(_inlined(path, parts, done) for path in paths if path not in done)


def _inlined(path: str, parts: Parts, done: set[str]) -> str:
    done.add(path)

    def text(match: re.Match[str]) -> str:
        target = _resolved(path, match[1], parts)
        if target is None:
            return match[0]
        return f"// {target} is above" if target in done else _inlined(target, parts, done)

    return f"// {path}\n" + _INCLUDE.sub(text, _ONCE.sub("", parts[path]))


def _included(path: str, parts: Parts) -> Iterator[str]:
    for match in _INCLUDE.finditer(parts[path]):
        target = _resolved(path, match[1], parts)
        if target is not None:
            yield target


def _resolved(path: str, name: str, parts: Parts) -> str | None:
    """The file that an #include means: beside the one that includes it, or below the common folder."""
    for start in (PurePosixPath(path).parent, PurePosixPath()):
        candidate = _normal(start / name)
        if candidate in parts:
            return candidate
    return None


def _normal(path: PurePosixPath) -> str:
    steps: list[str] = []
    for step in path.parts:
        if step == ".." and steps:
            steps.pop()
        elif step != ".":
            steps.append(step)
    return "/".join(steps)


def joined_python(path: str, symbol: str, parts: Parts) -> str:
    """A module that embeds this file and those that it imports, and defines `symbol` as this file does."""
    names = closure(path, parts)
    modules = {_module(name): parts[name] for name in names}
    packages = {""} | {_module(name) for name in names if name.endswith("__init__.py")}
    for name in names:
        packages |= {".".join(PurePosixPath(parent).parts) for parent in map(str, PurePosixPath(name).parents)} - {"."}
    files = "\n".join(f"    {name!r}: {_literal(text)}," for name, text in modules.items())
    loader = _LOADER.format(entry=path, files=files, packages=sorted(packages), package=PACKAGE)
    return f'{loader}{symbol} = importlib.import_module("{PACKAGE}.{_module(path)}").{symbol}\n'


def _module(path: str) -> str:
    steps = PurePosixPath(path).with_suffix("").parts
    return ".".join(steps[:-1] if steps[-1] == "__init__" else steps)


def _literal(text: str) -> str:
    """The text as a Python literal that stays readable where that is possible."""
    quotable = not text.endswith(("\\", "'")) and "\r" not in text and "\0" not in text
    for quotes in ("'''", '"""'):
        if quotable and quotes not in text and not text.endswith(quotes[0]):
            return f"r{quotes}{text}{quotes}"
    return repr(text)


def _imported(path: str, parts: Parts) -> set[str]:
    try:
        tree = ast.parse(parts[path])
    except (SyntaxError, ValueError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found |= _files((), tuple(alias.name.split(".")), parts)
        elif isinstance(node, ast.ImportFrom):
            start = PurePosixPath(path).parts[: -node.level] if node.level else ()
            steps = tuple(node.module.split(".")) if node.module else ()
            found |= _files(start, steps, parts)
            for alias in node.names:
                found |= _files(start, (*steps, alias.name), parts)
    return found


def _files(start: tuple[str, ...], steps: tuple[str, ...], parts: Parts) -> set[str]:
    """The known files that importing this module runs: its own, and those of the packages around it."""
    found = set()
    for count in range(len(steps) + 1):
        stem = "/".join((*start, *steps[:count]))
        for candidate in (f"{stem}.py", f"{stem}/__init__.py".lstrip("/")):
            if candidate in parts:
                found.add(candidate)
    return found
