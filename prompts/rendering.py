"""A template and its variables become a prompt; the archive can tell the same prompt again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, get_args

from jinja2 import (
    ChoiceLoader,
    Environment,
    FileSystemLoader,
    PrefixLoader,
    StrictUndefined,
    Template,
    TemplateError,
    TemplateSyntaxError,
)

from state.effects import Prompt
from state.program import Language, Program
from tasks.task import Task

_SHIPPED = Path(__file__).parent
_ROLES = ("world_model", "coder", "repair")


class PromptError(ValueError):
    """A template cannot be used; the message names its file, and the line where that is known."""


class Templates:
    """The shipped templates, each of which a folder of the user's own may replace.

    The folder may hold world_model.md.j2, coder.md.j2, repair.md.j2, coder.LANGUAGE.md.j2 for one language's programs,
    and files beginning with _ that these include. They may extend the shipped ones as "shipped/NAME".
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Raises PromptError when there is no such folder, or a file in it cannot be a template."""
        shipped = FileSystemLoader(_SHIPPED)
        own = [] if folder is None else [FileSystemLoader(folder)]
        loader = ChoiceLoader([*own, shipped, PrefixLoader({"shipped": shipped})])
        self._environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                                        keep_trailing_newline=True, autoescape=False)  # fmt: skip
        self._digests: dict[str, str] = {}
        if folder is not None:
            self._examine(folder)

    def _examine(self, folder: Path) -> None:
        if not folder.is_dir():
            raise PromptError(f"{folder}: no such folder of prompts")
        languages = get_args(Language)
        names = {f"{role}.md.j2" for role in _ROLES} | {f"coder.{language}.md.j2" for language in languages}
        for path in sorted(folder.glob("*.j2")):
            if path.name not in names and not path.name.startswith("_"):
                raise PromptError(f"{path}: no prompt has this name; there are {', '.join(sorted(names))}")
            try:
                self._environment.get_template(path.name)
            except TemplateSyntaxError as error:
                raise PromptError(f"{path}:{error.lineno}: {error.message}") from None
            except (OSError, UnicodeError) as error:
                raise PromptError(f"{path}: {error}") from None

    def render(self, name: str, variables: dict[str, Any], language: str | None = None) -> Prompt:
        """The text of a template under these variables; the language's own version of it, if there is one.

        Raises PromptError when it uses a variable that is not given, or otherwise fails.
        """
        names = [f"{name.removesuffix('.md.j2')}.{language}.md.j2", name] if language else [name]
        try:
            template = self._environment.select_template(names)
            text = template.render(**variables)
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise PromptError(f"the template {names[-1]}: {type(error).__name__}: {error}") from error
        stored = json.dumps(variables, default=_reference, separators=(",", ":"))
        return Prompt(template=f"{template.name}@{self._digest(template)}", variables=stored, text=text)

    def _digest(self, template: Template) -> str:
        """Twelve hex digits of the file."""
        where = str(template.filename)
        if where not in self._digests:
            self._digests[where] = hashlib.sha256(Path(where).read_bytes()).hexdigest()[:12]
        return self._digests[where]


SHIPPED = Templates()


def _reference(value: object) -> dict[str, str]:
    if isinstance(value, Program):
        return {"program": value.id}
    if isinstance(value, Task):
        return {"task": value.name, "task_hash": value.hash}
    raise TypeError(f"{type(value).__name__} cannot be a prompt's variable")


def prompt_hash(prompt: Prompt) -> str:
    """Sixteen hex digits of the prompt's text."""
    return hashlib.sha256(prompt.text.encode()).hexdigest()[:16]
