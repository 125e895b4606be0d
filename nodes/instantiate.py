"""Phase 2: one attempt to realise the action as a program."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_core.messages import HumanMessage

from nodes.parking import park, wait_if_parked
from nodes.services import Services
from prompts.coder import Assignment, Unusable, ask, parse_program
from state.edits import Attempt, apply
from state.program import Program
from state.search import Action, Best, LastAttempt, SearchState, improves, logged
from state.tree import SearchTree
from state.verdict import Passed, Verdict, score_of, summary
from tasks.evaluator import EvaluatorUnavailable


@dataclass(frozen=True)
class _Tried:
    """What one attempt came to."""

    verdict: str
    message: str
    program: str | None = None
    score: float = 0.0
    noise: float = 0.0
    seconds: float = 0.0
    """Of the evaluation and its confirmation."""
    spent: bool = False
    """It costs one unit of the budget."""
    reused: bool = False
    confirmed: bool = False


def instantiate(state: SearchState, services: Services) -> SearchState:
    """One more attempt is in the log; the action's best and its stagnation counter are up to date."""
    state = {**state, **wait_if_parked(state)}
    action = Action.model_validate(state["action"])
    tree = services.trees.read(state)
    prompt = ask(_assignment(state, services, tree, action))
    reply, thinking = services.ask(state, "instantiate", state["attempts"], prompt, [HumanMessage(prompt.text)])
    language = services.task.languages[0]
    program = parse_program(reply.text, services.task, language)
    try:
        tried = _try(state, services, program)
    except EvaluatorUnavailable as reason:
        return park(reason, program.id if isinstance(program, Program) else None)
    state = {**state, "elapsed_s": state["elapsed_s"] + thinking}
    return _concluded(state, services, tree, action, tried)


def _assignment(state: SearchState, services: Services, tree: SearchTree, action: Action) -> Assignment:
    last = None if state["last"] is None else LastAttempt.model_validate(state["last"])
    return Assignment(
        task=services.task,
        language=services.task.languages[0],
        hardware=services.evaluator.hardware,
        intent=tree[action.node].intent,
        attempt=action.attempts + 1,
        parent=_program(services, action.parent_program),
        parent_score=action.parent_score,
        best=_program(services, action.program),
        best_verdict=_passed(services, action.program),
        last=last,
        last_program=None if last is None else _program(services, last.program),
    )


def _program(services: Services, program_id: str | None) -> Program | None:
    return None if program_id is None else services.archive.program(program_id)


def _passed(services: Services, program_id: str | None) -> Passed | None:
    """The latest verdict that a program passed under, or None."""
    if program_id is None:
        return None
    return services.archive.latest_passed(services.verdict_key(program_id, "attempt"))


def _try(state: SearchState, services: Services, program: Program | Unusable) -> _Tried:
    """The attempt's verdict. A score that might lead the run is measured a second time, and that one counts."""
    if isinstance(program, Unusable):
        return _Tried("unusable", f"the reply could not be used: {program.reason}")
    services.archive.keep(program)
    if services.archive.tried(state["run"], state["branch"], program.id):
        return _Tried("duplicate", "byte-identical to an earlier program; not evaluated again", program.id)
    verdict, seconds, reused = services.verdict(program, "attempt")
    confirmed = False
    if _leads(state, services, score_of(verdict), 0.0):
        verdict, more, _ = services.verdict(program, "confirm")
        seconds += more
        confirmed = isinstance(verdict, Passed)
    return _Tried(verdict.kind, _message(verdict), program.id, score_of(verdict), _noise(verdict), seconds,
                  spent=True, reused=reused, confirmed=confirmed)  # fmt: skip


def _leads(state: SearchState, services: Services, score: float, noise: float) -> bool:
    """Whether a score of this noise beats the best of the run, whose own noise counts when this one's does."""
    best = None if state["best"] is None else Best.model_validate(state["best"])
    standing = None if best is None else (best.score, best.noise if noise else 0.0)
    return improves(score, noise, standing, services.settings.min_improvement)


def _message(verdict: Verdict) -> str:
    return summary(verdict) if isinstance(verdict, Passed) else verdict.message


def _noise(verdict: Verdict) -> float:
    return verdict.noise if isinstance(verdict, Passed) else 0.0


def _concluded(state: SearchState, services: Services, tree: SearchTree, action: Action, tried: _Tried) -> SearchState:
    standing = None if action.program is None else (action.score, action.noise)
    improved = improves(tried.score, tried.noise, standing, services.settings.min_improvement)
    changes: dict[str, object] = {
        "attempts": action.attempts + 1,
        "stagnation": 0 if improved else action.stagnation + 1,
        "verdicts": (*action.verdicts, tried.verdict if not tried.score else f"J {tried.score:.1f}"),
    }
    if improved:
        changes |= {"program": tried.program, "score": tried.score, "noise": tried.noise}
    event = Attempt(round=state["round"], node=action.node, program_id=tried.program, verdict=tried.verdict,
                    score=tried.score, best=improved)  # fmt: skip
    applied = apply(tree, [event])
    last = LastAttempt(node=action.node, ordinal=state["attempts"], program=tried.program, verdict=tried.verdict,
                       score=tried.score, message=tried.message, improved=improved, reused=tried.reused)  # fmt: skip
    update: SearchState = {
        **services.trees.write(applied.tree),
        **logged(state, applied.accepted),
        "action": action.model_copy(update=changes).model_dump(mode="json"),
        "last": last.model_dump(mode="json"),
        "parked": None,
        "attempts": state["attempts"] + 1,
        "evaluations": state["evaluations"] + tried.spent,
        "idle": 0 if tried.spent else state["idle"] + 1,
        "elapsed_s": state["elapsed_s"] + tried.seconds,
    }
    if tried.confirmed and tried.program is not None and _leads(state, services, tried.score, tried.noise):
        best = Best(node=action.node, program=tried.program, score=tried.score, noise=tried.noise)
        update["best"] = best.model_dump(mode="json")
    return update
