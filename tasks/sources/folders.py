"""Task folders that are made from upstream problems: TOML text, and a place outside of the repository."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

_BARE = re.compile(r"^[A-Za-z0-9_-]+$")


def kept(name: str, texts: dict[str, str]) -> Path:
    """The folder with exactly these files, below the user's cache; its name ends with a hash of them.

    `texts` maps relative paths to contents. Raises OSError.
    """
    digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:16]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ksearch" / "tasks"
    folder = base / f"{name}-{digest}"
    if _holds(folder, texts):
        return folder
    base.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=base))
    try:
        for path, text in texts.items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).write_text(text, encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
    except OSError:
        if not _holds(folder, texts):  # another process may have made it meanwhile
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _holds(folder: Path, texts: dict[str, str]) -> bool:
    try:
        return all((folder / path).read_bytes() == text.encode() for path, text in texts.items())
    except OSError:
        return False


def toml(data: dict[str, Any]) -> str:
    """TOML text of plain data; lists of dicts become arrays of tables, dicts become tables."""
    plain, tables = [], []
    for key, value in data.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            tables += [f"\n[[{_key(key)}]]\n" + _lines(item) for item in value]
        elif isinstance(value, dict):
            tables.append(f"\n[{_key(key)}]\n" + _lines(value))
        else:
            plain.append(f"{_key(key)} = {_value(value)}\n")
    return "".join(plain + tables)


def _lines(table: dict[str, Any]) -> str:
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items())


def _key(key: str) -> str:
    return key if _BARE.match(key) else _string(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"TOML has no form for {value!r}")


def _string(text: str) -> str:
    """A basic string, over several lines where the text has some."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if "\n" in text:
        return '"""\n' + _printable(escaped, keep="\n\t") + '"""'
    return '"' + _printable(escaped, keep="") + '"'


def _printable(text: str, keep: str) -> str:
    return "".join(c if c in keep or (c >= " " and c != "\x7f") else f"\\u{ord(c):04x}" for c in text)
