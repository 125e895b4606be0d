"""The end: the best program on inputs that the search never saw."""

from __future__ import annotations

from nodes.parking import park, wait_if_parked
from nodes.projection import record
from nodes.services import Services
from state.search import Best, SearchState
from state.verdict import partial, score_on, summary
from tasks.evaluator import EvaluatorUnavailable


def finish(state: SearchState, services: Services) -> SearchState:
    """The result is written and the run is done."""
    state = {**state, **wait_if_parked(state, services)}
    result: dict[str, object] = {"best": state["best"], "stop_reason": state["stop_reason"]}
    if state["best"] is not None:
        best = Best.model_validate(state["best"])
        try:
            verdict, _, _ = services.verdict(services.archive.program(best.program), "held_out")
        except EvaluatorUnavailable as reason:
            return park(reason, best.program)
        workloads = [workload.name for workload in services.task.held_out or services.task.workloads]
        held_out = score_on(verdict, workloads)
        result |= {
            "held_out_score": held_out,
            "held_out_verdict": ", ".join(filter(None, (summary(verdict), partial(verdict, workloads)))),
            "gap": held_out / best.score - 1 if held_out else None,
        }
    changes: SearchState = {"status": "done", "result": result, "parked": None}
    record({**state, **changes}, services.settings, services.archive)
    return changes
