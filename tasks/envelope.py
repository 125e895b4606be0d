"""Evaluation requests and their answers as files in folders. Standard library only: both machines read these.

A request's name is a hash of what it says, so that equal requests are one file. An answer bears its request's name
and holds, for each step of the request that was made, the worker's reply and the machine that it came from. It is
written anew after every step, so what is there is true, and says so with a digest of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import Any

from tasks.version import VERSION

Fields = dict[str, Any]

FORMAT = 1
"""Changes whenever files of another format cannot be understood."""
REQUESTS = "requests"
ANSWERS = "answers"
COLLECTED = "collected"
"""Below the spool: requests whose answers have come in."""
_REQUEST: dict[str, type] = {
    "format": int, "evaluator": str, "name": str, "task_hash": str, "files": dict, "task": dict, "language": str,
    "device": str, "march": str, "threads": int, "program": dict, "steps": list,
}  # fmt: skip
_ANSWER: dict[str, type] = {"format": int, "request": str, "results": dict}


class BadFile(ValueError):
    """A file is no request or no answer; the message says why."""


def digest(value: Fields) -> str:
    """Twenty-four hex digits of a JSON-plain value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def write(path: Path, value: Fields) -> None:
    """The whole value is in the file and on the disk; at no moment is a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with partial.open("x", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems cannot do this for a folder
            os.fsync(folder)
    finally:
        os.close(folder)


def write_answer(folder: Path, request: str, results: Fields) -> None:
    """The answer to a request, as far as it is known, is in the folder."""
    answer = {"format": FORMAT, "request": request, "results": results}
    write(folder / ANSWERS / f"{request}.json", {**answer, "digest": digest(answer)})


def read_request(path: Path) -> Fields:
    """The request in a file that bears its name. Raises BadFile."""
    request = _read(path)
    _known(request, _REQUEST, "a request")
    if request["evaluator"] != VERSION:
        raise BadFile(
            f"it is for version {request['evaluator']} of the evaluator, and this checkout has {VERSION}: "
            "bring both machines to the same commit"
        )
    if digest(request) != path.stem:
        raise BadFile("its name is not the hash of what it says: it was changed or is damaged")
    if not _sensible(request):
        raise BadFile("it is not a request: its files, program or steps are not as they should be")
    return request


def read_answer(path: Path) -> Fields:
    """The results in a file that bears its request's name, by step. Raises BadFile."""
    answer = _read(path)
    claimed = answer.pop("digest", None)
    _known(answer, _ANSWER, "an answer")
    if digest(answer) != claimed or answer["request"] != path.stem:
        raise BadFile("it does not hold what its digest and its name promise: it was changed or is damaged")
    results: Fields = answer["results"]
    for step, result in results.items():
        if not isinstance(result, dict) or not all(isinstance(result.get(key), dict) for key in ("reply", "machine")):
            raise BadFile(f"it says nothing that can be understood of the step {step!r}")
    return results


def wanted(request: Fields, results: Fields) -> list[Fields]:
    """The steps of a request that are still to be made: none beyond one that did not pass."""
    for index, step in enumerate(request["steps"]):
        result = results.get(step["purpose"])
        if result is None:
            return list(request["steps"][index:])
        if not passed(result):
            return []
    return []


def passed(result: Fields) -> bool:
    """Whether a step came to what the next one needs."""
    reply = result["reply"]
    return "timings" in reply or reply.get("verdict", {}).get("kind") == "passed"


def listed(folder: Path) -> list[Path]:
    """The files that may be requests or answers, the oldest first."""
    found = []
    for path in folder.glob("*.json"):
        with contextlib.suppress(FileNotFoundError):
            found.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(found)]


def _sensible(request: Fields) -> bool:
    """Whether what a request holds has the form that the worker relies on."""
    program, steps = request["program"], request["steps"]
    asked = {"race"} if program is None else {"evaluate"}
    return (
        {"task.toml", "reference.py"} <= set(request["files"])
        and all(isinstance(text, str) and _below(name) for name, text in request["files"].items())
        and isinstance(request["task"].get("compile_s"), int | float)
        and (program is None or {type(program.get(key)) for key in ("id", "language", "text")} == {str})
        and bool(steps)
        and all(isinstance(step, dict) and step.get("do") in asked and "purpose" in step for step in steps)
    )


def _below(name: str) -> bool:
    """Whether a relative path stays below where it is joined to."""
    return bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts


def _read(path: Path) -> Fields:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadFile(f"it cannot be read: {type(error).__name__}: {error}") from None
    if not isinstance(value, dict):
        raise BadFile("it holds no JSON object")
    return value


def _known(value: Fields, fields: dict[str, type], what: str) -> None:
    if value.get("format") != FORMAT:
        raise BadFile(f"it is not {what} of format {FORMAT}")
    if set(value) != set(fields):
        raise BadFile(f"it is not {what}: {', '.join(sorted(set(value) ^ set(fields)))} should or should not be there")
    for name, kind in fields.items():
        if not isinstance(value[name], kind) and not (value[name] is None and name in ("program", "threads")):
            raise BadFile(f"it is not {what}: {name} is no {kind.__name__}")
