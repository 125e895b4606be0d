"""A model that is somebody outside: a person, or any agent, who answers each prompt through the run's interrupt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult

from state.search import AwaitedPrompt

OPERATOR = "operator"
"""The model's name."""
LABEL = "operator: prompts are answered by an operator, not an API"
"""Shown wherever an operator's results are."""


class Unanswered(Exception):
    """Nobody has answered these messages yet; `text` is all that they say."""

    def __init__(self, text: str) -> None:
        super().__init__("the prompt waits for an operator's reply")
        self.text = text


class ReplyAwaited(Exception):
    """The node cannot go on before an operator has answered these prompts."""

    def __init__(self, prompts: Sequence[AwaitedPrompt]) -> None:
        count = f"{len(prompts)} prompts wait" if len(prompts) != 1 else "a prompt waits"
        super().__init__(f"{count} for an operator's reply")
        self.prompts = tuple({prompt.key: prompt for prompt in prompts}.values())
        """Each once, in order: equal prompts have one reply."""


class OperatorModel(BaseChatModel):
    """Answers nothing by itself: every call raises Unanswered. Replies come into the archive by the interrupt."""

    @property
    def _llm_type(self) -> str:
        return OPERATOR

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any,
    ) -> ChatResult:  # fmt: skip
        raise Unanswered(transcript(messages))


def transcript(messages: Sequence[BaseMessage]) -> str:
    """One text that holds what a model would be sent: the prompt, and the turns that followed it."""
    parts = [messages[0].text.rstrip()]
    for message in messages[1:]:
        heading = "# Your reply to this was" if isinstance(message, AIMessage) else "# Now"
        parts.append(f"{heading}\n\n{message.text.strip()}")
    return "\n\n".join(parts) + "\n"
