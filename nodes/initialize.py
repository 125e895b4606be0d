"""Init(T): the baseline, the seed program, the first intents."""

from __future__ import annotations

from pydantic import TypeAdapter

from nodes.models.operator import ReplyAwaited
from nodes.parking import park, wait_if_parked
from nodes.services import Services
from nodes.turn import world_model_turn
from state.edits import Attempt, Event, apply
from state.program import Program
from state.search import Best, SearchState, logged
from state.tree import ROOT, new_tree
from state.verdict import Passed, score_on
from tasks.evaluator import BaselineTiming, EvaluatorUnavailable

_TIMINGS: TypeAdapter[tuple[BaselineTiming, ...]] = TypeAdapter(tuple[BaselineTiming, ...])


def initialize(state: SearchState, services: Services) -> SearchState:
    """The baseline is measured, the seed is a program of the root, root intents are pending."""
    changes = SearchState() if "tree" in state else _fresh(services)
    changes |= wait_if_parked({**state, **changes}, services)
    try:
        changes |= _measured({**state, **changes}, services)
        return {**changes, **world_model_turn({**state, **changes}, services, "initialize")}
    except (EvaluatorUnavailable, ReplyAwaited) as reason:
        return {**changes, **park(reason, None)}


def _fresh(services: Services) -> SearchState:
    begun_before = services.archive.event_count(services.run, "main") > 0
    branch = services.archive.fork(services.run, "main", 0) if begun_before else "main"
    return {
        "run": services.run, "branch": branch, "settings": services.settings.model_dump(mode="json"),
        "status": "running", "log": [], "event_count": 0, "round": 0, "action": None, "last": None,
        "outcome": None, "best": None, "evaluations": 0, "attempts": 0, "turns": 0, "elapsed_s": 0.0,
        "asked": {"calls": 0, "tokens": 0},
        "dry": 0, "idle": 0, "pending": None, "rejected": [], "words": [], "person_edits": [],
        "repair": None, "parked": None, "baseline": [], "result": None, "stop_reason": None,
        **services.trees.write(new_tree(services.task.title)),
    }  # fmt: skip


def measure_baseline(services: Services) -> tuple[BaselineTiming, ...]:
    """The run's baseline, measured once; the evaluator measures against it from now on."""

    def race() -> str:
        return _TIMINGS.dump_json(services.evaluator.baseline()).decode()

    timings = _TIMINGS.validate_json(services.archive.baseline(services.run, race))
    services.evaluator.use_baseline(timings)
    return timings


def _measured(state: SearchState, services: Services) -> SearchState:
    if state["baseline"]:
        return {}
    baseline = measure_baseline(services)
    changes: SearchState = {"baseline": [timing.model_dump(mode="json") for timing in baseline]}
    if services.settings.seed_program is None:
        return changes
    seed = Program(language=services.task.languages[0], source=services.settings.seed_program)
    services.archive.keep(seed)
    verdict, seconds, _ = services.verdict(seed, "seed")
    score = score_on(verdict, services.workloads)
    events: list[Event] = [Attempt(node=ROOT, program_id=seed.id, verdict=verdict.kind, score=score, best=score > 0)]
    applied = apply(services.trees.read(state), events)
    if isinstance(verdict, Passed) and score > 0:
        best = Best(node=ROOT, program=seed.id, score=score, noise=verdict.noise)
        changes["best"] = best.model_dump(mode="json")
    return {**changes, **services.trees.write(applied.tree), **logged(state, applied.accepted),
            "elapsed_s": state["elapsed_s"] + seconds}  # fmt: skip
