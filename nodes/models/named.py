"""From a model's name to a chat model."""

from __future__ import annotations

import os

import httpx
from langchain_core.language_models import BaseChatModel

from nodes.models.playbook import PlaybookModel
from tasks.playbook import load_playbook
from tasks.task import Task

KEYS = {"openai": "OPENAI_API_KEY", "google_genai": "GOOGLE_API_KEY"}
"""The environment variable that holds each provider's key."""


class ModelError(ValueError):
    """A model cannot be used; the message says which variable, package or name is wrong."""


class ModelUnavailable(RuntimeError):
    """A model call failed, at the provider or on the way to it; nothing was spent that is not in the archive."""


def failures(name: str) -> tuple[type[Exception], ...]:
    """What a call of this model may raise through no fault of the program."""
    provider = name.partition(":")[0]
    if provider == "openai":
        from openai import OpenAIError

        return (OpenAIError, httpx.HTTPError)
    if provider == "google_genai":
        from google.genai.errors import APIError
        from langchain_google_genai.chat_models import ChatGoogleGenerativeAIError

        return (APIError, ChatGoogleGenerativeAIError, httpx.HTTPError)
    return ()


def choices(task: Task) -> str:
    """One line: the models that can be named for this task."""
    playbook = (
        f"playbook (no LLM, hand-written for this task in {task.languages[0]})" if task.playbook.is_dir() else None
    )
    return ", ".join(filter(None, [playbook, "openai:NAME", "google_genai:NAME"]))


def model_named(name: str, task: Task) -> BaseChatModel:
    """The model: "playbook", "playbook:shuffle=SEED", "openai:NAME" or "google_genai:NAME".

    Raises ModelError when there is no such model, no key, or no playbook for the task.
    """
    provider, _, rest = name.partition(":")
    if provider == "playbook":
        return _playbook(rest, task)
    if provider not in KEYS or not rest:
        raise ModelError(f"unknown model {name!r}; choose with --model one of: {choices(task)}")
    if not os.environ.get(KEYS[provider]):
        raise ModelError(
            f"model {name!r} needs a key: set {KEYS[provider]}, or choose with --model one of: {choices(task)}"
        )
    return _openai(rest) if provider == "openai" else _google(rest)


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


def _openai(name: str) -> BaseChatModel:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=name)


def _google(name: str) -> BaseChatModel:
    from langchain_google_genai import ChatGoogleGenerativeAI

    return ChatGoogleGenerativeAI(model=name)
