"""What every graph node does around its own work: lease, projection of the log, a person's overwrites."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig

from nodes.services import Services, ServicesFactory
from state.archive import Archive
from state.edits import Edit, Insert, Prune, Update, apply
from state.search import Best, SearchState, digest
from state.settings import RunInput, Settings
from state.tree import SearchTree, TreeNode, new_tree
from tasks.evaluator import BaselineTiming

Node = Callable[[SearchState, Services], SearchState]


def step(node: Node, factory: ServicesFactory) -> Callable[[SearchState, RunnableConfig], SearchState]:
    """The node as LangGraph calls it: alone on its run, on a state whose log is recorded."""

    def execute(state: SearchState, config: RunnableConfig) -> SearchState:
        run = str(config["configurable"]["thread_id"])
        begun = "tree" in state
        settings = Settings.model_validate(state["settings"]) if begun else settings_of(state)
        services = factory(run, settings)
        with services.lease:
            changes: SearchState = _caught_up(state, services) if begun else {}
            work: SearchState = {**state, **changes}
            return {**changes, **node(work, services)}

    return execute


def settings_of(state: SearchState) -> Settings:
    """The settings that a run's input asks for. Raises pydantic.ValidationError on a bad value."""
    given = {name: state[name] for name in RunInput.model_fields if name in state}  # type: ignore[literal-required]
    form = RunInput.model_validate(given).model_dump()
    return Settings.model_validate({**form.pop("advanced"), **form})


def with_tree(tree: SearchTree) -> SearchState:
    """The change of the tree's channels."""
    plain = tree.model_dump(mode="json")
    return {"tree": plain, "tree_digest": digest(plain)}


def summary(state: SearchState, services: Services) -> dict[str, Any]:
    """The run's line in the list of runs."""
    best = None if state["best"] is None else Best.model_validate(state["best"])
    settings = services.settings
    return {
        "task": services.task.name, "status": state["status"], "model": settings.model,
        "world_model": settings.world_model_name, "coder": settings.coder_name, "budget": settings.budget,
        "evaluations": state["evaluations"], "attempts": state["attempts"], "branch": state["branch"],
        "best_score": None if best is None else best.score, "best_program": None if best is None else best.program,
    }  # fmt: skip


def _caught_up(state: SearchState, services: Services) -> SearchState:
    """The evaluator knows the baseline, and what earlier nodes decided is recorded.

    A state that goes back in time starts a branch of its own.
    """
    archive, run = services.archive, services.run
    services.evaluator.use_baseline(tuple(BaselineTiming.model_validate(row) for row in state["baseline"]))
    changes: SearchState = {}
    branch, count = state["branch"], state["event_count"]
    if archive.event_count(run, branch) > count:
        branch = archive.fork(run, branch, count)
        changes["branch"] = branch
    start = count - len(state["log"])
    archive.record(run, branch, start, state["log"])
    archive.save_run(run, summary({**state, **changes}, services))
    if digest(state["tree"]) != state["tree_digest"]:
        changes |= _overwritten({**state, **changes}, services)
    return changes


def _overwritten(state: SearchState, services: Services) -> SearchState:
    """A tree that was written over: back to the log's tree, the differences as a person's edits."""
    tree = logged_tree(services.archive, services.run, state["branch"], services.task.title, state["event_count"])
    edits, refused = differences(tree, state["tree"])
    return {
        **with_tree(tree),
        "person_edits": state["person_edits"] + [edit.model_dump(mode="json") for edit in edits],
        "rejected": state["rejected"] + refused,
    }


def logged_tree(archive: Archive, run: str, branch: str, title: str, end: int | None = None) -> SearchTree:
    """The tree that the recorded log gives."""
    return apply(new_tree(title), archive.events(run, branch, end)).tree


def differences(tree: SearchTree, written: dict[str, Any]) -> tuple[list[Edit], list[str]]:
    """What a person meant by overwriting the tree: edits, and in words what cannot be edited."""
    try:
        other = SearchTree.model_validate(written)
    except ValueError as error:
        return [], [f"the tree that a person wrote is not a tree and was left out: {error}"]
    edits: list[Edit] = []
    refused: list[str] = []
    for node in other.nodes[: len(tree.nodes)]:
        edit, reason = _difference(tree[node.id], node)
        edits += [edit] if edit is not None else []
        refused += [reason] if reason is not None else []
    for node in other.nodes[len(tree.nodes) :]:
        edits.append(
            Insert(author="person", parent=node.parent_id or "n0", key=node.id, title=node.intent.title,
                   description=node.intent.description, priority=node.priority, difficulty=node.difficulty,
                   predicted_score=node.predicted_score, confidence=node.confidence, evidence=node.evidence)
        )  # fmt: skip
    missing = [node.id for node in tree.nodes[len(other.nodes) :]]
    if missing:
        refused.append(f"{', '.join(missing)}: nodes are never removed; prune them instead")
    return edits, refused


_EDITABLE = ("priority", "difficulty", "predicted_score", "confidence", "evidence")


def _difference(ours: TreeNode, theirs: TreeNode) -> tuple[Edit | None, str | None]:
    if ours == theirs:
        return None, None
    free = {*_EDITABLE, "intent", "status"}
    changed = sorted(key for key in TreeNode.model_fields if getattr(ours, key) != getattr(theirs, key))
    locked = [key for key in changed if key not in free]
    reason = f"{ours.id}: {', '.join(locked)} cannot be edited; the search alone writes it" if locked else None
    if ours.status != theirs.status and theirs.status == "pruned":
        return Prune(author="person", node=ours.id, evidence=theirs.evidence or "pruned by a person"), reason
    if ours.status != theirs.status and (ours.status, theirs.status) != ("pruned", "open"):
        return None, f"{ours.id}: {ours.status} cannot be made {theirs.status}"
    values = {key: getattr(theirs, key) for key in _EDITABLE if key in changed}
    if "intent" in changed:
        values |= {"title": theirs.intent.title, "description": theirs.intent.description}
    if not values and ours.status == theirs.status:
        return None, reason
    revive = ours.status != theirs.status
    return Update(author="person", node=ours.id, revive=revive, **values), reason
