"""A playbook: hand-written intents and program templates of a task folder. No language model is involved."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tasks.task import TaskError

LABEL = "playbook: no LLM; ideas and code are hand-written"
"""Shown wherever a playbook's results are."""

Params = dict[str, Any]


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PlaybookIntent(_Data):
    """One idea, what its author expects of it, and how its programs are made."""

    key: str
    title: str
    description: str
    requires: str | None = None
    """Key of the intent that it builds on; None for a first idea."""
    priority: float = Field(ge=0, le=1)
    forecast: float | None = None
    confidence: float | None = Field(default=None, ge=0, le=1)
    difficulty: int | None = Field(default=None, ge=1, le=5)
    template: str
    params: Params = {}
    """Set over the parameters of the program that it starts from."""
    variants: tuple[Params, ...] = ({},)
    """Attempts 1, 2, 3 ...: each set over `params`."""


class Rule(_Data):
    """How beliefs change when an intent has been pursued."""

    after: str
    when: Literal["always", "improved", "not_improved", "failed"] = "always"
    set: dict[str, float] = {}
    """New priorities by intent key."""
    prune: tuple[str, ...] = ()
    reason: str


class Playbook(_Data):
    """All that a task's playbook holds."""

    folder: Path
    defaults: Params = {}
    intents: tuple[PlaybookIntent, ...] = Field(min_length=1)
    rules: tuple[Rule, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        keys = [intent.key for intent in self.intents]
        titles = [intent.title for intent in self.intents]
        for index, intent in enumerate(self.intents):
            if keys.count(intent.key) > 1:
                raise ValueError(f"the key {intent.key!r} is used twice")
            if titles.count(intent.title) > 1:
                raise ValueError(f"the title {intent.title!r} is used twice")
            if intent.requires is not None and intent.requires not in keys[:index]:
                raise ValueError(f"{intent.key}.requires: no intent {intent.requires!r} comes before it")
        for rule in self.rules:
            for key in (rule.after, *rule.set, *rule.prune):
                if key not in keys:
                    raise ValueError(f"a rule after {rule.after!r} names {key!r}, which is no intent")
        return self

    def by_title(self, title: str) -> PlaybookIntent | None:
        """The intent of this title, or None."""
        return next((intent for intent in self.intents if intent.title == title), None)

    def program(self, intent: PlaybookIntent, inherited: Params, attempt: int) -> tuple[Params, str]:
        """The parameters and the source of an attempt (1, 2, ...); the last variant is repeated for ever.

        Raises TaskError when the template cannot be rendered.
        """
        variant = intent.variants[min(attempt, len(intent.variants)) - 1]
        params = {**self.defaults, **inherited, **intent.params, **variant}
        environment = Environment(loader=FileSystemLoader(self.folder), undefined=StrictUndefined,
                                  trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)  # fmt: skip
        try:
            return params, environment.get_template(intent.template).render(**params)
        except TemplateError as error:
            raise TaskError(f"{self.folder / intent.template}: {intent.key}: {error}") from None

    def shuffled(self, seed: int) -> Playbook:
        """The same intents with their priorities dealt out anew, to see how much the search owes to them."""
        priorities = [intent.priority for intent in self.intents]
        random.Random(seed).shuffle(priorities)
        dealt = [i.model_copy(update={"priority": p}) for i, p in zip(self.intents, priorities, strict=True)]
        return self.model_copy(update={"intents": tuple(dealt)})


def load_playbook(folder: Path) -> Playbook:
    """The playbook in a folder; TaskError names the file and the key that is wrong."""
    file = folder / "intents.toml"
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        book = Playbook.model_validate({**data, "folder": folder})
    except OSError as error:
        raise TaskError(f"{file}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"{file}: not valid TOML: {error}") from None
    except ValidationError as error:
        lines = [f"{file}: {'.'.join(map(str, e['loc'])) or 'playbook'}: {e['msg']}" for e in error.errors()]
        raise TaskError("\n".join(lines)) from None
    for intent in book.intents:
        if not (folder / intent.template).is_file():
            raise TaskError(f"{file}: {intent.key}.template: there is no file {intent.template!r}")
    return book
