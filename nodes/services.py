"""What nodes call: built once per run from its settings, and handed in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage

from nodes.models.calling import call
from nodes.models.operator import ReplyAwaited, Unanswered
from prompts.rendering import SHIPPED, Templates, prompt_hash
from state.archive import Archive
from state.channel import TreeChannel
from state.effects import CallKey, Prompt, Purpose, Reply, VerdictKey
from state.lease import Lease
from state.program import Program
from state.search import AwaitedPrompt, SearchState
from state.settings import Settings
from state.verdict import Passed, Verdict
from tasks.evaluator import Evaluator
from tasks.task import Task


@dataclass(frozen=True)
class Services:
    """The outside world of one run."""

    run: str
    settings: Settings
    task: Task
    archive: Archive
    evaluator: Evaluator
    world_model: BaseChatModel
    coder: BaseChatModel
    lease: Lease
    later: BaseChatModel | None = None
    """Plays both roles once the settings say so."""
    templates: Templates = SHIPPED
    trees: TreeChannel = field(default_factory=TreeChannel)

    def verdict(self, program: Program, purpose: Purpose) -> tuple[Verdict, float, bool]:
        """The verdict for a purpose, its seconds, and whether it was in the archive already.

        Raises EvaluatorUnavailable; then nothing was stored.
        """
        measure = {
            "attempt": self.evaluator.evaluate,
            "seed": self.evaluator.evaluate,
            "confirm": self.evaluator.confirm,
            "held_out": self.evaluator.held_out,
        }[purpose]
        return self.archive.verdict(self.verdict_key(program.id, purpose), lambda: measure(program))

    @property
    def workloads(self) -> tuple[str, ...]:
        """Names of the workloads that a program must be measured on to be the best of anything."""
        return tuple(workload.name for workload in self.task.workloads)

    def prepare(self, programs: Sequence[Program]) -> None:
        """The evaluator knows which of these programs it will be asked about next. Raises EvaluatorUnavailable."""
        unknown = [p for p in programs if not self.archive.has_verdict(self.verdict_key(p.id, "attempt"))]
        self.evaluator.prepare(unknown)

    def passed(self, program_id: str) -> Passed | None:
        """The latest verdict that the program passed under here, apart from the held-out one; None: there is none."""
        return self.archive.latest_passed(self.verdict_key(program_id, "attempt"))

    def verdict_key(self, program_id: str, purpose: Purpose) -> VerdictKey:
        """The key under which a verdict on this run's task, evaluator and hardware is stored."""
        return VerdictKey(program=program_id, task_hash=self.task.hash, evaluator=self.evaluator.version,
                          hardware=self.evaluator.hardware, purpose=purpose)  # fmt: skip

    def ask(
        self, state: SearchState, node: str, ordinal: int, prompt: Prompt, messages: list[BaseMessage]
    ) -> tuple[Reply, float]:
        """The reply to these messages, of which `prompt` is the last, and the seconds that it took.

        The node "instantiate" asks the coder, every other the world model. Raises ReplyAwaited when an operator
        has yet to give the reply.
        """
        coder = node == "instantiate"
        model = self.coder if coder else self.world_model
        name = self.settings.coder_name if coder else self.settings.world_model_name
        if self.later is not None and self.settings.switch_to and self.settings.switched(state["evaluations"]):
            model, name = self.later, self.settings.switch_to
        key = CallKey(run=self.run, branch=state["branch"], node=node, ordinal=ordinal,
                      role="coder" if coder else "world_model", prompt_hash=prompt_hash(prompt))  # fmt: skip
        try:
            return self.archive.reply(key, prompt, lambda: _call(model, name, messages))
        except Unanswered as asked:
            awaited = AwaitedPrompt(key=key, template=prompt.template, variables=prompt.variables, text=asked.text)
            raise ReplyAwaited([awaited]) from None


def _call(model: BaseChatModel, name: str, messages: list[BaseMessage]) -> Reply:
    message = call(model, name, messages)
    usage = message.usage_metadata
    counted = {} if usage is None else {
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "cached_tokens": usage.get("input_token_details", {}).get("cache_read") or 0,
        "reasoning_tokens": usage.get("output_token_details", {}).get("reasoning") or 0,
    }  # fmt: skip
    finish = str(message.response_metadata.get("finish_reason") or "")
    return Reply(text=message.text.encode(errors="replace").decode(), model=name, finish=finish, **counted)


ServicesFactory = Callable[[str, Settings], Services]
"""From a run's id and its settings to its services; called once per node execution, so it should remember."""
