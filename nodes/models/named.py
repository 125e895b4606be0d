"""From a model's name to a chat model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from langchain_core.language_models import BaseChatModel

from nodes.models.operator import OPERATOR, OperatorModel
from nodes.models.playbook import PlaybookModel
from tasks.playbook import load_playbook
from tasks.task import Task

KEYS = {"openai": "OPENAI_API_KEY", "google_genai": "GOOGLE_API_KEY"}
"""The environment variable that holds each provider's key."""


class ModelError(ValueError):
    """A model cannot be used; the message says which variable, package or name is wrong."""


class ModelUnavailable(RuntimeError):
    """A model call failed, at the provider or on the way to it; nothing was spent that is not in the archive."""


def choices(task: Task) -> str:
    """One line: the models that can be named for this task."""
    playbook = (
        f"playbook (no LLM, hand-written for this task in {task.languages[0]})" if task.playbook.is_dir() else None
    )
    operator = "operator (a person or any program answers each prompt)"
    return ", ".join(filter(None, [playbook, operator, "openai:NAME", "google_genai:NAME"]))


@dataclass(frozen=True)
class Options:
    """How models are called; None leaves a choice to the provider."""

    base_url: str | None = None
    """Of an OpenAI-compatible server, with or without /v1."""
    temperature: float | None = None
    reasoning_effort: str | None = None
    max_output_tokens: int | None = None
    timeout_s: float = 600.0


_PROVIDERS_CHOICE = Options()


def model_named(name: str, task: Task, options: Options = _PROVIDERS_CHOICE) -> BaseChatModel:
    """The model: "playbook", "playbook:shuffle=SEED", "operator", "openai:NAME" or "google_genai:NAME".

    Raises ModelError when there is no such model, no key, or no playbook for the task.
    """
    provider, _, rest = name.partition(":")
    if provider == "playbook":
        return _playbook(rest, task)
    if name == OPERATOR:
        return OperatorModel()
    if provider not in KEYS or not rest:
        raise ModelError(f"unknown model {name!r}; choose with --model one of: {choices(task)}")
    keyless = provider == "openai" and options.base_url is not None
    if not keyless and not os.environ.get(KEYS[provider]):
        raise ModelError(
            f"model {name!r} needs a key: set {KEYS[provider]}, or choose with --model one of: {choices(task)}"
        )
    return _openai(rest, options) if provider == "openai" else _google(rest, options)


def _playbook(option: str, task: Task) -> PlaybookModel:
    if not task.playbook.is_dir():
        raise ModelError(
            f"task {task.name!r} has no playbook for {task.languages[0]}; choose with --model one of: {choices(task)}"
        )
    shuffle: int | None = None
    if option:
        key, _, value = option.partition("=")
        if key != "shuffle" or not value.isdecimal():
            raise ModelError(f"unknown model 'playbook:{option}'; say playbook or playbook:shuffle=SEED")
        shuffle = int(value)
    book = load_playbook(task.playbook)
    return PlaybookModel(playbook=book if shuffle is None else book.shuffled(shuffle))


def _openai(name: str, options: Options) -> BaseChatModel:
    from langchain_openai import ChatOpenAI

    given: dict[str, Any] = {"temperature": options.temperature, "reasoning_effort": options.reasoning_effort,
                             "max_tokens": options.max_output_tokens}  # fmt: skip
    if options.base_url is not None:
        given |= {"base_url": server_url(options.base_url), "api_key": os.environ.get(KEYS["openai"]) or "none",
                  "use_responses_api": False}  # fmt: skip
    return ChatOpenAI(model=name, timeout=options.timeout_s, max_retries=0, **_chosen(given))


def _google(name: str, options: Options) -> BaseChatModel:
    from langchain_google_genai import ChatGoogleGenerativeAI

    given = {"temperature": options.temperature, "reasoning_effort": options.reasoning_effort,
             "max_output_tokens": options.max_output_tokens}  # fmt: skip
    return ChatGoogleGenerativeAI(model=name, timeout=options.timeout_s, max_retries=1, **_chosen(given))


def server_url(url: str) -> str:
    """The address below which an OpenAI-compatible server has /chat/completions: a bare host gets /v1.

    Raises ModelError when it is no address.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ModelError(f"--base-url {url!r} is no address; say for instance http://127.0.0.1:8000/v1")
    path = parts.path.rstrip("/").removesuffix("/chat/completions")
    return urlunsplit((parts.scheme, parts.netloc, path or "/v1", parts.query, ""))


def _chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if value is not None}
