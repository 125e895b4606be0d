"""What every graph node does around its own work: lease, projection of the log, a person's overwrites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig

from nodes.overwrites import differences, logged_tree
from nodes.projection import announce, record
from nodes.services import Services, ServicesFactory
from state.search import SearchState
from state.settings import RunInput, Settings
from tasks.evaluator import BaselineTiming

Node = Callable[[SearchState, Services], SearchState]


def step(node: Node, factory: ServicesFactory) -> Callable[[SearchState, RunnableConfig], SearchState]:
    """The node as LangGraph calls it: alone on its run, on a state whose log is recorded."""

    def execute(state: SearchState, config: RunnableConfig) -> SearchState:
        run = str(config["configurable"]["thread_id"])
        begun = "tree" in state
        settings = Settings.model_validate(state["settings"]) if begun else settings_of(state)
        services = factory(run, settings)
        checkpoint = config["configurable"].get("checkpoint_map", {}).get("")
        with services.lease:
            if checkpoint is not None:
                services.archive.await_checkpoint(run, checkpoint)
            if not begun:
                announce(run, settings, services.archive)
            changes: SearchState = _caught_up(state, services) if begun else {}
            work: SearchState = {**state, **changes}
            return {**changes, **node(work, services)}

    return execute


def settings_of(state: SearchState) -> Settings:
    """The settings that a run's input asks for. Raises pydantic.ValidationError on a bad value."""
    given = {name: state[name] for name in RunInput.model_fields if name in state}  # type: ignore[literal-required]
    form = RunInput.model_validate(given).model_dump()
    return Settings.model_validate({**form.pop("advanced"), **form})


def _caught_up(state: SearchState, services: Services) -> SearchState:
    """The evaluator knows the baseline, and what earlier nodes decided is recorded.

    A state that goes back in time starts a branch of its own.
    """
    archive, run = services.archive, services.run
    services.evaluator.use_baseline(tuple(BaselineTiming.model_validate(row) for row in state["baseline"]))
    changes: SearchState = {}
    start = state["event_count"] - len(state["log"])
    recorded = archive.plain_events(run, state["branch"], start)
    shared = _agreement(recorded, state["log"])
    if shared < len(recorded):
        changes["branch"] = archive.fork(run, state["branch"], start + shared)
    record({**state, **changes}, services.settings, archive, known=shared if "branch" not in changes else None)
    if not services.trees.intact(state):
        changes |= _overwritten({**state, **changes}, services)
    return changes


def _agreement(recorded: list[dict[str, Any]], log: list[dict[str, Any]]) -> int:
    """How many events the two have in common from their start."""
    pairs = zip(recorded, log, strict=False)
    return next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(recorded), len(log)))


def _overwritten(state: SearchState, services: Services) -> SearchState:
    """A tree that was written over: back to the log's tree, the differences as a person's edits."""
    tree = logged_tree(services.archive, services.run, state["branch"], services.task.title, state["event_count"])
    edits, refused = differences(tree, state["tree"])
    return {
        **services.trees.write(tree),
        "person_edits": state["person_edits"] + [edit.model_dump(mode="json") for edit in edits],
        "rejected": state["rejected"] + refused,
    }
