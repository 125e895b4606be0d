"""One turn of the world model: what it is shown, and the edits that it proposes."""

from __future__ import annotations

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from nodes.services import Services
from prompts.feedback import baseline_line, timings, weakest
from prompts.world_model import Situation, ask, ask_again, parse_edits
from state.search import Best, Outcome, Repair, SearchState, counted, pending
from tasks.evaluator import BaselineTiming


def world_model_turn(state: SearchState, services: Services, node: str) -> SearchState:
    """The changes after one model call: pending edits, or a reply that must be repaired.

    An unusable part of the first reply gives one repair turn, which is an execution of the node of its own;
    after that the usable edits are kept and the rest is reported to the next turn.
    """
    prompt = ask(_situation(state, services), services.templates)
    messages: list[BaseMessage] = [HumanMessage(prompt.text)]
    repair = None if state["repair"] is None else Repair.model_validate(state["repair"])
    if repair is not None:
        prompt = ask_again(repair.errors, services.templates)
        messages += [AIMessage(repair.reply), HumanMessage(prompt.text)]
    reply, seconds = services.ask(state, node, state["turns"], prompt, messages)
    parsed = parse_edits(reply.text)
    changes: SearchState = {"turns": state["turns"] + 1, "elapsed_s": state["elapsed_s"] + seconds,
                            "asked": counted(state["asked"], [reply])}  # fmt: skip
    if parsed.errors and repair is None:
        again = Repair(reply=reply.text, errors=parsed.errors)
        return {**changes, "repair": again.model_dump(mode="json")}
    return {
        **changes,
        "repair": None,
        "pending": pending(parsed.edits).model_dump(mode="json"),
        "rejected": list(parsed.errors),
        "words": [],
    }


def _situation(state: SearchState, services: Services) -> Situation:
    outcome = None if state["outcome"] is None else Outcome.model_validate(state["outcome"])
    return Situation(
        task=services.task,
        hardware=services.evaluator.hardware,
        baseline=baseline_line([BaselineTiming.model_validate(row) for row in state["baseline"]]),
        tree=services.trees.read(state),
        round=state["round"],
        evaluations=state["evaluations"],
        budget=services.settings.budget,
        max_difficulty=services.settings.max_difficulty,
        best=None if state["best"] is None else Best.model_validate(state["best"]),
        outcome=outcome,
        detail=_detail(state, services, outcome),
        rejected=tuple(state["rejected"]),
        words=tuple(state["words"]),
        weakest=_weakest(state, services, outcome),
    )


def _weakest(state: SearchState, services: Services, outcome: Outcome | None) -> str:
    """The worst workloads of the run's best program, unless they are shown as the outcome's."""
    best = None if state["best"] is None else Best.model_validate(state["best"])
    if best is None or (outcome is not None and outcome.program == best.program):
        return ""
    passed = services.passed(best.program)
    return "" if passed is None else weakest(passed)


def _detail(state: SearchState, services: Services, outcome: Outcome | None) -> str:
    if outcome is None:
        return ""
    if outcome.program is None:
        return "" if state["last"] is None else f"Last message: {state['last']['message']}"
    passed = services.passed(outcome.program)
    return "" if passed is None else timings(passed, services.task)
