"""Requests that came as files, and the trusted process that is loaded for whichever is at hand. Standard library."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tasks import envelope, host
from tasks.envelope import Fields
from tasks.errors import WorkFailed
from tasks.isolation import usable_cores
from tasks.trusted import TrustedProcess, defeat

_PATIENCE_S = 900.0


@dataclass(frozen=True)
class Pending:
    """A request that has no full answer yet."""

    id: str
    request: Fields
    results: Fields
    """What was answered, by step."""

    @cached_property
    def setting(self) -> str:
        """Equal for requests that one trusted process can serve."""
        names = ("files", "task", "language", "device", "march", "threads")
        return envelope.digest({name: self.request[name] for name in names})

    @property
    def title(self) -> str:
        """What the request is about, in a few words."""
        program = self.request["program"]
        what = "baseline" if program is None else f"program {program['id']}"
        return f"{what} of {self.request['name']} ({self.request['language']}, {self.request['device']})"

    @property
    def threads(self) -> int:
        """OpenMP threads for both sides."""
        return self.request["threads"] or usable_cores()


class Bench:
    """Holds one trusted process at a time, below one folder."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._process: TrustedProcess | None = None
        self._setting = ""

    def loaded(self, item: Pending) -> TrustedProcess:
        """The process runs and has the request's task. Raises TaskError, ToolMissing, EvaluatorUnavailable."""
        if self._process is None or self._setting != item.setting:
            self.end()
            request, place = item.request, self._folder / item.setting
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            for name, text in request["files"].items():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_text(text, encoding="utf-8")
            task = {**request["task"], "reference": str(place / "reference.py"), "manifest": str(place / "task.toml")}
            chosen = {key: request[key] for key in ("device", "language", "march")}
            self._process = TrustedProcess({"task": task, "folder": str(place), **chosen}, item.threads, place)
            self._setting = item.setting
        self._process.start()
        return self._process

    def build(self, items: list[Pending]) -> None:
        """The programs are built, side by side; one that ends the process is met again at its own evaluation."""
        programs = [item.request["program"] for item in items]
        limit_s = _PATIENCE_S + len(programs) * float(items[0].request["task"]["compile_s"])
        with contextlib.suppress(WorkFailed):
            self.loaded(items[0]).ask({"do": "build", "programs": programs}, limit_s)

    def reply(self, item: Pending, step: Fields) -> Fields:
        """The trusted process's reply, or what happened when it failed once more in a fresh process."""
        question = {key: value for key, value in step.items() if key != "purpose"}
        if item.request["program"] is not None:
            question["program"] = item.request["program"]
        words = ""
        for _ in range(2):
            try:
                return self.loaded(item).ask(question, _PATIENCE_S)
            except WorkFailed as error:
                words = str(error)
                self._say(f"{item.title}: {words}")
        if item.request["program"] is None:
            return {"task_error": f"the race of the baselines failed twice: {words}"}
        return defeat(words)

    def machine(self, item: Pending) -> Fields:
        """What a receipt needs to know of this machine and of the process that is loaded for the request."""
        facts = self._process.loaded if self._process is not None and self._setting == item.setting else {}
        hardware = facts.get("hardware") or host.described(item.threads, facts.get("isa", ""))
        return {"hardware": hardware, "threads": item.threads, "loaded": facts}

    def end(self) -> None:
        """No process is left."""
        if self._process is not None:
            self._process.end()
            self._process = None
