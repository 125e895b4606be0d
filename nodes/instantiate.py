"""Phase 2: one attempt to realise the action, by one program or by several sampled at once."""

from __future__ import annotations

from dataclasses import dataclass, replace

from langchain_core.messages import HumanMessage

from nodes.models.operator import ReplyAwaited
from nodes.parking import park, wait_if_parked
from nodes.services import Services
from prompts.coder import Assignment, ask
from prompts.programs import Unusable, parse_program
from state.edits import Attempt, apply
from state.effects import Reply
from state.program import Program
from state.search import Action, AwaitedPrompt, Best, LastAttempt, SearchState, counted, improves, logged
from state.tree import SearchTree
from state.verdict import Passed, Verdict, partial, score_on, summary
from tasks.evaluator import EvaluatorUnavailable


@dataclass(frozen=True)
class _Tried:
    """What one sample came to."""

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
    leads: bool = False
    """Confirmed as the best of the run."""

    @property
    def word(self) -> str:
        """What the world model is told of it."""
        return f"J {self.score:.1f}" if self.score else self.verdict


def instantiate(state: SearchState, services: Services) -> SearchState:
    """One more attempt is in the log; the action's best and its stagnation counter are up to date."""
    awaited = state["parked"] is not None and not state["parked"].get("prompts")
    state = {**state, **wait_if_parked(state, services)}
    action = Action.model_validate(state["action"])
    tree = services.trees.read(state)
    trial = _Trial(state, services, awaited)
    try:
        sampled, thinking, replies = _sampled(state, services, _assignment(state, services, tree, action))
        trial.prepare([sample for sample in sampled if isinstance(sample, Program)])
        for sample in sampled:
            trial.add(sample)
    except (EvaluatorUnavailable, ReplyAwaited) as reason:
        return park(reason, trial.at)
    asked = counted(state["asked"], replies)
    state = {**state, "elapsed_s": state["elapsed_s"] + thinking, "asked": asked}
    return _concluded(state, services, tree, trial.tried)


def _sampled(
    state: SearchState, services: Services, assignment: Assignment
) -> tuple[list[Program | Unusable], float, list[Reply]]:
    """The coder's programs, no more than there are verdicts and calls left for, their seconds, and the replies.

    Raises ReplyAwaited for all prompts whose replies an operator has yet to give.
    """
    settings = services.settings
    count = min(settings.samples, settings.budget - state["evaluations"])
    if settings.max_calls is not None:
        count = min(count, settings.max_calls - state["asked"]["calls"])
    sampled, seconds, replies = [], 0.0, []
    awaited: list[AwaitedPrompt] = []
    for sample in range(1, count + 1):
        prompt = ask(replace(assignment, sample=sample), services.templates)
        try:
            reply, thinking = services.ask(state, "instantiate", state["attempts"], prompt, [HumanMessage(prompt.text)])
        except ReplyAwaited as missing:
            awaited += missing.prompts
            continue
        language = services.task.languages[0]
        sampled.append(parse_program(reply.text, services.task, language, cut_off=reply.cut_off))
        seconds += thinking
        replies.append(reply)
    if awaited:
        raise ReplyAwaited(awaited)
    return sampled, seconds, replies


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
        parent_verdict=_passed(services, action.parent_program),
        last_verdict=_passed(services, last.program) if last is not None and last.verdict == "passed" else None,
        samples=services.settings.samples,
    )


def _program(services: Services, program_id: str | None) -> Program | None:
    return None if program_id is None else services.archive.program(program_id)


def _passed(services: Services, program_id: str | None) -> Passed | None:
    return None if program_id is None else services.passed(program_id)


class _Trial:
    """The samples of one attempt as they are judged, one after the other."""

    def __init__(self, state: SearchState, services: Services, awaited: bool) -> None:
        self.tried: list[_Tried] = []
        self.at: str | None = None
        """The program at hand."""
        self._state = state
        self._services = services
        self._earlier: dict[str, bool] = {}
        """Of each program whether the run has tried it in an earlier attempt."""
        self._awaited = awaited
        """The run waited for verdicts of this attempt: they were reached for it."""
        best = None if state["best"] is None else Best.model_validate(state["best"])
        self._standing = None if best is None else (best.score, best.noise)

    def prepare(self, programs: list[Program]) -> None:
        """All are in the archive, and the evaluator knows those that it will be asked about."""
        for program in programs:
            self._services.archive.keep(program)
        fresh = {program.id: program for program in programs if not self._repeated(program)}
        self._services.prepare(list(fresh.values()))

    def add(self, sample: Program | Unusable) -> None:
        """The sample's verdict. A score that might lead the run is measured a second time, and that one counts."""
        if isinstance(sample, Unusable):
            self.tried.append(_Tried("unusable", f"the reply could not be used: {sample.reason}"))
            return
        self.at = sample.id
        if self._repeated(sample):
            said = "byte-identical to an earlier program; not evaluated again"
            self.tried.append(_Tried("duplicate", said, sample.id))
            return
        verdict, seconds, reused = self._services.verdict(sample, "attempt")
        leads = False
        if self._beats(self._score(verdict), 0.0):
            verdict, more, _ = self._services.verdict(sample, "confirm")
            seconds += more
            leads = self._beats(self._score(verdict), _noise(verdict))
        lacking = partial(verdict, self._services.workloads)
        said = f"{_message(verdict)}, {lacking}: it cannot be the best" if lacking else _message(verdict)
        tried = _Tried(verdict.kind, said, sample.id, self._score(verdict), _noise(verdict), seconds,
                       spent=True, reused=reused and not self._awaited, leads=leads)  # fmt: skip
        if leads:
            self._standing = (tried.score, tried.noise)
        self.tried.append(tried)

    def _score(self, verdict: Verdict) -> float:
        return score_on(verdict, self._services.workloads)

    def _repeated(self, program: Program) -> bool:
        if program.id not in self._earlier:
            where = self._state["run"], self._state["branch"]
            self._earlier[program.id] = self._services.archive.tried(*where, program.id)
        return self._earlier[program.id] or any(tried.program == program.id for tried in self.tried)

    def _beats(self, score: float, noise: float) -> bool:
        """Whether a score of this noise beats the best of the run, whose own noise counts when this one's does."""
        standing = None if self._standing is None else (self._standing[0], self._standing[1] if noise else 0.0)
        return improves(score, noise, standing, self._services.settings.min_improvement)


def _message(verdict: Verdict) -> str:
    return summary(verdict) if isinstance(verdict, Passed) else verdict.message


def _noise(verdict: Verdict) -> float:
    return verdict.noise if isinstance(verdict, Passed) else 0.0


def _concluded(state: SearchState, services: Services, tree: SearchTree, batch: list[_Tried]) -> SearchState:
    """The attempt as a change of the state: an event for each sample, one step of the stagnation counter."""
    action = Action.model_validate(state["action"])
    events = []
    for tried in batch:
        standing = None if action.program is None else (action.score, action.noise)
        improved = improves(tried.score, tried.noise, standing, services.settings.min_improvement)
        if improved:
            action = action.model_copy(update={"program": tried.program, "score": tried.score, "noise": tried.noise})
        events.append(Attempt(round=state["round"], node=action.node, program_id=tried.program,
                              verdict=tried.verdict, score=tried.score, best=improved))  # fmt: skip
    changes = {
        "attempts": action.attempts + 1,
        "stagnation": 0 if any(event.best for event in events) else action.stagnation + 1,
        "verdicts": (*action.verdicts, *(tried.word for tried in batch)),
    }
    applied = apply(tree, list(events))
    spent = sum(tried.spent for tried in batch)
    update: SearchState = {
        **services.trees.write(applied.tree),
        **logged(state, applied.accepted),
        "action": action.model_copy(update=changes).model_dump(mode="json"),
        "last": _last(state, action.node, batch, events).model_dump(mode="json"),
        "parked": None,
        "attempts": state["attempts"] + 1,
        "evaluations": state["evaluations"] + spent,
        "idle": 0 if spent else state["idle"] + 1,
        "asked": state["asked"],
        "elapsed_s": state["elapsed_s"] + sum(tried.seconds for tried in batch),
    }
    for tried in batch:
        if tried.leads and tried.program is not None:
            best = Best(node=action.node, program=tried.program, score=tried.score, noise=tried.noise)
            update["best"] = best.model_dump(mode="json")
    return update


def _last(state: SearchState, node: str, batch: list[_Tried], events: list[Attempt]) -> LastAttempt:
    """The best sample; of several that failed the first that was evaluated."""
    tried, event = max(zip(batch, events, strict=True), key=lambda pair: (pair[1].best, pair[0].score, pair[0].spent))
    return LastAttempt(
        node=node, ordinal=state["attempts"], program=tried.program, verdict=tried.verdict, score=tried.score,
        message=tried.message, improved=event.best, reused=tried.reused,
        samples=tuple(sample.word for sample in batch) if len(batch) > 1 else (),
    )  # fmt: skip
