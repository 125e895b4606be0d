"""A call of a chat model that outlives what providers do: busy servers, parameters that a model does not take."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage

from nodes.models.named import KEYS, ModelUnavailable

_TRIES = 6
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 60.0
_LONGEST_ASKED_S = 600.0
"""A server that asks for more patience than this is not waited for."""
_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REFUSED = frozenset({401, 403})
_OPTIONAL: dict[str, tuple[str, ...]] = {
    "temperature": ("temperature",),
    "reasoning_effort": ("reasoning_effort", "reasoning", "thinking_level", "thinking_config"),
    "max_tokens": ("max_completion_tokens", "max_tokens"),
    "max_output_tokens": ("max_output_tokens", "maxOutputTokens"),
}
"""Fields of a chat model that can be left out, and the names under which a server complains of them."""
_stopping = threading.Event()


def end_waits() -> None:
    """No call waits for a busy server any more; those that do fail at once. For signal handlers."""
    _stopping.set()


def allow_waits() -> None:
    """Calls may wait again."""
    _stopping.clear()


def call(model: BaseChatModel, name: str, messages: Sequence[BaseMessage]) -> AIMessage:
    """The model's message.

    A busy or broken server is asked up to six times, after as long as it says (Retry-After) or else after growing and
    random waits. A parameter that the model does not take is left out of this call and all later ones. Raises
    ModelUnavailable; for a key that was refused the message names the variable that holds it.
    """
    if name.partition(":")[0] not in KEYS:
        return model.invoke(list(messages))
    tries = 0
    while True:
        try:
            return model.invoke(list(messages))
        except Exception as error:
            if not _from_provider(error):
                raise
            if _left_out(model, error):
                continue
            tries += 1
            if tries >= _TRIES or not _may_pass(error):
                raise ModelUnavailable(_explained(name, error)) from error
            asked = _asked_wait_s(error)
            if asked is not None and asked > _LONGEST_ASKED_S:
                raise ModelUnavailable(f"{_explained(name, error)} (it asks to wait {asked:.0f} s)") from error
            drawn = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (tries - 1)) * random.uniform(0.5, 1.5)
            if _stopping.wait(drawn if asked is None else asked + random.uniform(0.0, 0.1 * asked)):
                raise ModelUnavailable(f"{_explained(name, error)}; stopped while waiting to ask again") from error


def _from_provider(error: Exception) -> bool:
    """Whether the server, or the way to it, is at fault; a reply without choices makes langchain raise anything."""
    from google.genai.errors import APIError
    from langchain_google_genai.chat_models import ChatGoogleGenerativeAIError
    from openai import OpenAIError

    known = (OpenAIError, APIError, ChatGoogleGenerativeAIError, httpx.HTTPError, OSError)
    return isinstance(error, known) or _malformed(error)


def _malformed(error: Exception) -> bool:
    return type(error) in (IndexError, KeyError, TypeError, AttributeError, ValueError)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and its causes: langchain wraps what the vendor's package raised."""
    while error is not None:
        yield error
        error = error.__cause__


def _status(error: Exception) -> int | None:
    """The HTTP status, if there was an answer."""
    for link in _chain(error):
        for field in ("status_code", "code"):
            value = getattr(link, field, None)
            if isinstance(value, int):
                return value
    return None


def _may_pass(error: Exception) -> bool:
    """Whether asking again may help: nothing was answered, the server is busy, or what it said made no sense."""
    status = _status(error)
    if status is None:
        return True
    return status in _BUSY and "insufficient_quota" not in str(error)


def _left_out(model: BaseChatModel, error: Exception) -> bool:
    """Whether the server refused a parameter (400 or 422) that has now been taken away from the model."""
    if _status(error) not in (400, 422):
        return False
    blamed = getattr(error, "param", None) or str(error)
    for field, names in _OPTIONAL.items():
        if getattr(model, field, None) is not None and any(re.search(rf"\b{name}\b", blamed) for name in names):
            setattr(model, field, None)
            return True
    return False


def _asked_wait_s(error: Exception) -> float | None:
    """What the server's Retry-After says: seconds or a date."""
    for link in _chain(error):
        response: Any = getattr(link, "response", None)
        said = getattr(response, "headers", {}).get("retry-after") if response is not None else None
        if not said:
            continue
        try:
            return max(0.0, float(said))
        except ValueError:
            pass
        try:
            until = parsedate_to_datetime(said)
        except ValueError:
            continue
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    return None


def _explained(name: str, error: Exception) -> str:
    variable = KEYS[name.partition(":")[0]]
    if _status(error) in _REFUSED:
        return f"the model {name!r} refused the key in {variable}: {error}"
    if _malformed(error):
        return f"the model {name!r} sent a reply that is not one: {type(error).__name__}: {error}"
    return f"the model {name!r} did not answer: {type(error).__name__}: {error}"
