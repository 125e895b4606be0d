"""A template and its variables become a prompt; the archive can tell the same prompt again."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from state.effects import Prompt
from state.program import Program
from tasks.task import Task


@lru_cache(maxsize=1)
def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                       keep_trailing_newline=True, autoescape=False)  # fmt: skip


@lru_cache(maxsize=32)
def _template_hash(name: str) -> str:
    return hashlib.sha256((Path(__file__).parent / name).read_bytes()).hexdigest()[:12]


def render(template: str, variables: dict[str, Any]) -> Prompt:
    """The text of prompts/<template> under these variables.

    Raises jinja2.UndefinedError when the template uses a variable that is not given.
    """
    text = _environment().get_template(template).render(**variables)
    stored = json.dumps(variables, default=_reference, separators=(",", ":"))
    return Prompt(template=f"{template}@{_template_hash(template)}", variables=stored, text=text)


def _reference(value: object) -> dict[str, str]:
    if isinstance(value, Program):
        return {"program": value.id}
    if isinstance(value, Task):
        return {"task": value.name, "task_hash": value.hash}
    raise TypeError(f"{type(value).__name__} cannot be a prompt's variable")


def prompt_hash(prompt: Prompt) -> str:
    """Sixteen hex digits of the prompt's text."""
    return hashlib.sha256(prompt.text.encode()).hexdigest()[:16]
