"""The state machine: six nodes, and the routers between them."""

from __future__ import annotations

from typing import Any, Literal

from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from graph.services import LiveServices
from nodes.approve import approve
from nodes.co_evolve import co_evolve
from nodes.finish import finish
from nodes.initialize import initialize
from nodes.instantiate import instantiate
from nodes.select import select
from nodes.services import ServicesFactory
from nodes.step import step
from state.search import Action, SearchState, Spending, budget_left
from state.settings import RunInput, Settings

RECURSION_LIMIT = 1_000_000
"""Super-steps; the budget and the breakers end a run long before."""


class Waiting(TypedDict, total=False):
    """The channels that send a node back to itself. A router reads no more channels than it names."""

    parked: dict[str, Any] | None
    repair: dict[str, Any] | None


class Chosen(TypedDict, total=False):
    """The channels that say what `select` decided."""

    action: dict[str, Any] | None
    stop_reason: str | None


class Refined(Spending, total=False):
    """The channels that the refine loop hangs on."""

    parked: dict[str, Any] | None
    action: dict[str, Any] | None
    settings: dict[str, Any]


def after_initialize(state: Waiting) -> Literal["initialize", "approve"]:
    """Again while the evaluator is away or a reply needs repair."""
    return "initialize" if state["parked"] or state["repair"] else "approve"


def after_select(state: Chosen) -> Literal["instantiate", "co_evolve", "finish"]:
    """Refine the action; or ask for new intents; or end."""
    if state["stop_reason"] is not None:
        return "finish"
    return "co_evolve" if state["action"] is None else "instantiate"


def after_instantiate(state: Refined) -> Literal["instantiate", "co_evolve"]:
    """The refine loop: until n reaches K or the budget ends."""
    if state["parked"]:
        return "instantiate"
    settings = Settings.model_validate(state["settings"])
    stagnant = Action.model_validate(state["action"]).stagnation >= settings.stagnation
    return "co_evolve" if stagnant or not budget_left(state, settings) else "instantiate"


def after_co_evolve(state: Waiting) -> Literal["co_evolve", "approve"]:
    """Again while the evaluator is away or a reply needs repair."""
    return "co_evolve" if state["parked"] or state["repair"] else "approve"


def after_finish(state: Waiting) -> Literal["finish", "__end__"]:
    """Again while the evaluator is away."""
    return "finish" if state["parked"] else "__end__"


def build_graph(factory: ServicesFactory) -> StateGraph[SearchState, None, RunInput, SearchState]:
    """The graph, not yet compiled; nodes get their services from the factory."""
    graph: Any = StateGraph(SearchState, input_schema=RunInput)
    for node in (initialize, approve, select, instantiate, co_evolve, finish):
        graph.add_node(node.__name__, step(node, factory))
    graph.add_edge(START, "initialize")
    graph.add_conditional_edges("initialize", after_initialize)
    graph.add_edge("approve", "select")
    graph.add_conditional_edges("select", after_select)
    graph.add_conditional_edges("instantiate", after_instantiate)
    graph.add_conditional_edges("co_evolve", after_co_evolve)
    graph.add_conditional_edges("finish", after_finish)
    typed: StateGraph[SearchState, None, RunInput, SearchState] = graph
    return typed


graph = build_graph(LiveServices()).compile().with_config(recursion_limit=RECURSION_LIMIT)
"""For `langgraph dev`, which brings its own saver."""
