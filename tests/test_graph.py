"""A person's say, time travel, and what the saver keeps, on the graph as the command line compiles it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeServices, ScriptedModel, compiled, edits, insert, program, resume, scripted, start, thread

from graph.checkpointer import StaleCheckpoint
from nodes.step import logged_tree
from state.archive import Archive
from state.lease import Lease, RunBusy
from state.settings import Settings

TWO = edits(insert("first idea", 0.9), insert("second idea", 0.5))
PRUNE = edits({"kind": "prune", "node": "n2", "evidence": "dominated"})
THIRD = edits(insert("third idea", 0.4))
NOTHING = edits()
FLAT = [program("J 100", f"number {index}") for index in range(100)]
APPROVE = {"type": "approve"}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "k.db"


def decide(*decisions: dict[str, Any]) -> dict[str, Any]:
    return {"decisions": list(decisions)}


def asked(state: dict[str, Any]) -> Any:
    (interrupt,) = state["__interrupt__"]
    return interrupt.value


def titles(state: dict[str, Any]) -> list[str]:
    return [node["intent"]["title"] for node in state["tree"]["nodes"][1:]]


def pursued(services: FakeServices, branch: str = "main") -> list[str]:
    """The nodes in the order in which they were closed."""
    return [event.node for event in archive(services).events("run", branch) if event.kind == "close"]


def archive(services: FakeServices) -> Archive:
    return services("run", Settings()).archive


def assert_the_log_gives_the_tree(services: FakeServices, state: dict[str, Any]) -> None:
    tree = logged_tree(archive(services), "run", state["branch"], services.task.title)
    assert tree.model_dump(mode="json") == state["tree"]
    assert archive(services).event_count("run", state["branch"]) == state["event_count"]


def test_the_recorded_log_gives_the_tree_of_the_state(database: Path) -> None:
    services, _, _ = scripted(database, [TWO, PRUNE, THIRD, NOTHING], FLAT)
    state = start(compiled(services), budget=9, stagnation=2, seed_program="// J 90\n")
    assert [node["status"] for node in state["tree"]["nodes"]] == ["closed", "closed", "pruned", "closed"]
    assert_the_log_gives_the_tree(services, state)


@pytest.mark.parametrize(("policy", "interrupts"), [("never", 0), ("prunes", 1), ("edits", 3)])
def test_a_policy_says_which_edits_wait(database: Path, policy: str, interrupts: int) -> None:
    services, _, _ = scripted(database, [TWO, PRUNE, THIRD, NOTHING], FLAT)
    graph = compiled(services)
    state, count = start(graph, budget=9, stagnation=1, approve=policy), 0
    while "__interrupt__" in state:
        count += 1
        state = resume(graph, decide(*[APPROVE] * len(asked(state)["action_requests"])))
    assert count == interrupts
    assert pursued(services) == ["n1", "n3"]
    assert_the_log_gives_the_tree(services, state)


def test_an_edited_priority_changes_what_is_selected_next(database: Path) -> None:
    services, _, coder = scripted(database, [TWO, NOTHING], FLAT)
    graph = compiled(services)
    state = start(graph, budget=9, stagnation=1, approve="edits")
    assert [action["args"]["priority"] for action in asked(state)["action_requests"]] == [0.9, 0.5]
    state = resume(graph, decide({"type": "edit", "edited_action": {"args": {"priority": 0.1}}}, APPROVE))
    assert pursued(services) == ["n2", "n1"]
    assert "second idea" in coder.prompt(0)
    assert [node["author"] for node in state["tree"]["nodes"]] == ["search", "person", "model"]


def test_a_rejection_leaves_the_edit_out_and_its_words_reach_the_world_model_once(database: Path) -> None:
    services, planner, _ = scripted(database, [TWO, THIRD, NOTHING], FLAT)
    graph = compiled(services)
    start(graph, budget=9, stagnation=1, approve="edits")
    state = resume(graph, decide(APPROVE, {"type": "reject", "message": "this was tried last year"}))
    assert titles(state) == ["first idea"]
    assert "# What a person says" in planner.prompt(1)
    assert "this was tried last year" in planner.prompt(1)
    assert "a person rejected it" in planner.prompt(1)
    resume(graph, decide(APPROVE))
    assert "this was tried last year" not in planner.prompt(2)


def test_an_answer_that_does_not_fit_is_asked_for_again(database: Path) -> None:
    services, planner, _ = scripted(database, [TWO, NOTHING], FLAT)
    first = asked(start(graph := compiled(services), budget=1, approve="edits"))
    stale = asked(resume(graph, {"pending": "0123456789abcdef", **decide(APPROVE, APPROVE)}))
    assert stale == {**first, "problem": stale["problem"]}
    assert stale["problem"].startswith("stale: ")
    assert asked(resume(graph, decide(APPROVE)))["problem"] == "1 decisions for 2 edits"
    assert resume(graph, {"pending": first["pending"], **decide(APPROVE, APPROVE)})["status"] == "done"
    assert len(planner.asked) == 1


def paused(database: Path, replies: list[str]) -> tuple[Any, FakeServices, ScriptedModel]:
    """A run that waits for a person after the first intent (n1) was closed, with n2 open."""
    services, planner, _ = scripted(database, replies, FLAT)
    graph = compiled(services)
    graph.invoke({"budget": 9, "approve": "prunes", "advanced": {"stagnation": 1}}, thread(), durability="sync",
                 interrupt_after=["co_evolve"])  # fmt: skip
    assert graph.get_state(thread()).next == ("approve",)
    return graph, services, planner


def test_a_persons_edits_are_applied_and_marked_as_theirs(database: Path) -> None:
    graph, services, _ = paused(database, [TWO, THIRD, NOTHING])
    person = [
        {"kind": "update", "node": "n2", "priority": 0.2},
        insert("a person's idea", 0.8, author="model"),
        {"kind": "prune", "node": "n3", "evidence": "no"},
    ]
    graph.update_state(thread(), {"person_edits": person})
    state = resume(graph)
    assert titles(state) == ["first idea", "second idea", "third idea", "a person's idea"]
    assert [node["status"] for node in state["tree"]["nodes"][1:]] == ["closed", "closed", "pruned", "closed"]
    assert pursued(services) == ["n1", "n4", "n2"]
    by_person = [event.kind for event in archive(services).events("run", "main") if event.author == "person"]
    assert by_person == ["update", "insert", "prune"]
    assert_the_log_gives_the_tree(services, state)


def test_a_person_revives_what_the_world_model_pruned(database: Path) -> None:
    graph, services, _ = paused(database, [TWO, PRUNE, NOTHING])
    graph.update_state(thread(), {"person_edits": [{"kind": "update", "node": "n2", "revive": True}]})
    assert asked(resume(graph))["action_requests"][0]["name"] == "prune"
    state = resume(graph, decide(APPROVE))
    assert state["tree"]["nodes"][2]["status"] == "closed"
    assert pursued(services) == ["n1", "n2"]


def test_a_persons_edit_that_cannot_be_used_is_reported(database: Path) -> None:
    graph, services, planner = paused(database, [TWO, NOTHING])
    wrong = [{"kind": "move", "node": "n2"}, 7, {"kind": "prune", "node": "n1"}, {"kind": "prune", "node": "n77"}]
    graph.update_state(thread(), {"person_edits": wrong})
    state = resume(graph)
    assert state["status"] == "done"
    told = ("'move'", "a person's edit 7 ", "n1 has been evaluated", "there is no node 'n77'")
    assert [line for line in told if line not in planner.prompt(2)] == []
    assert pursued(services) == ["n1", "n2"]


def overwrite(graph: Any, **changes: dict[str, Any]) -> None:
    """Writes over fields of nodes in the tree, as Studio does."""
    tree = graph.get_state(thread()).values["tree"]
    nodes = [node | changes.get(node["id"], {}) for node in tree["nodes"]]
    graph.update_state(thread(), {"tree": {"nodes": nodes}})


def test_a_tree_written_over_becomes_a_persons_edits(database: Path) -> None:
    graph, services, _ = paused(database, [TWO, NOTHING])
    tree = graph.get_state(thread()).values["tree"]
    tree["nodes"][2] |= {"priority": 0.1, "difficulty": 5}
    tree["nodes"] += [
        {"id": "n3", "parent_id": "n1", "intent": {"title": "new"}, "priority": 0.3},
        {"id": "n4", "parent_id": "n3", "intent": {"title": "newer"}, "priority": 0.4},
    ]
    graph.update_state(thread(), {"tree": tree})
    state = resume(graph)
    nodes = state["tree"]["nodes"]
    assert (nodes[2]["priority"], nodes[2]["difficulty"]) == (0.1, 5)
    assert [(n["intent"]["title"], n["parent_id"], n["author"]) for n in nodes[3:]] == [
        ("new", "n1", "person"), ("newer", "n3", "person"),
    ]  # fmt: skip
    assert pursued(services) == ["n1", "n3", "n4", "n2"]
    assert_the_log_gives_the_tree(services, state)


def test_a_child_of_a_node_that_was_refused_is_not_put_elsewhere(database: Path) -> None:
    graph, _, _ = paused(database, [TWO, NOTHING])
    tree = graph.get_state(thread()).values["tree"]
    for id, parent, title in (("n3", "n0", "second idea"), ("n4", "n0", "fourth idea"), ("n5", "n3", "its child")):
        tree["nodes"].append({"id": id, "parent_id": parent, "intent": {"title": title}, "priority": 0.3})
    graph.update_state(thread(), {"tree": tree})
    assert titles(resume(graph)) == ["first idea", "second idea", "fourth idea"]


def test_a_written_prune_takes_its_subtree_along_without_complaint(database: Path) -> None:
    below = edits(insert("a", 0.2, key="a"), insert("b", 0.2, parent="a"))
    graph, _, planner = paused(database, [TWO, below, NOTHING])
    graph.update_state(thread(), {"person_edits": []}, as_node="co_evolve")
    graph.invoke(None, thread(), interrupt_after=["approve"], durability="sync")
    overwrite(graph, n3={"status": "pruned"}, n4={"status": "pruned"})
    state = resume(graph)
    assert [node["status"] for node in state["tree"]["nodes"][3:]] == ["pruned", "pruned"]
    assert "refused" not in planner.prompt(2)


@pytest.mark.parametrize(
    ("node", "change", "told"),
    [
        ("n2", {"status": "closed"}, "n2: open cannot be made closed"),
        ("n1", {"status": "open"}, "n1: closed cannot be made open"),
        ("n1", {"score": 999.0, "attempts": 0}, "n1: attempts, score cannot be edited"),
        ("n2", {"priority": 7.0}, "is not a tree"),
    ],
)  # fmt: skip
def test_what_a_person_may_not_write_is_refused_in_words(
    database: Path, node: str, change: dict[str, Any], told: str
) -> None:
    graph, _, planner = paused(database, [TWO, NOTHING])
    before = graph.get_state(thread()).values["tree"]
    overwrite(graph, **{node: change})
    graph.invoke(None, thread(), interrupt_after=["approve"], durability="sync")
    assert graph.get_state(thread()).values["tree"] == before
    resume(graph)
    assert told in planner.prompt(2)


@pytest.mark.parametrize("written", [None, "garbage", {"nodes": []}])
def test_a_tree_that_is_none_is_put_back(database: Path, written: Any) -> None:
    graph, services, _ = paused(database, [TWO, NOTHING])
    graph.update_state(thread(), {"tree": written})
    state = resume(graph)
    assert titles(state) == ["first idea", "second idea"]
    assert_the_log_gives_the_tree(services, state)


def test_going_back_in_time_starts_a_branch_that_samples_anew(database: Path) -> None:
    services, _, coder = scripted(database, [TWO, NOTHING], [program("J 100"), program("J 90"), *FLAT])
    graph = compiled(services)
    first = start(graph, budget=3, stagnation=1)
    selected = [past for past in graph.get_state_history(thread()) if past.next == ("instantiate",)][-1]
    calls, evaluated = len(coder.asked), len(services.evaluator.evaluated)
    coder.replies = [*[""] * calls, program("J 100"), program("J 140")]
    second = graph.invoke(None, selected.config, durability="sync")
    assert (first["branch"], second["branch"]) == ("main", "fork1")
    assert coder.prompt(calls) == coder.prompt(0), "the same question"
    assert len(services.evaluator.evaluated) == evaluated + 1, "J 100 was measured already"
    assert second["best"]["score"] == pytest.approx(140)
    assert first["tree"]["nodes"][1]["score"] == pytest.approx(100)
    assert_the_log_gives_the_tree(services, first)
    assert_the_log_gives_the_tree(services, second)
    assert graph.invoke(None, selected.config, durability="sync")["branch"] == "fork2"


def test_the_ways_of_a_fork_keep_their_own_logs(database: Path) -> None:
    """Stepping: approved once, taken back and approved otherwise, and then the first way is taken after all."""
    services, _, _ = scripted(database, [TWO, NOTHING], FLAT)
    graph = compiled(services)
    graph.invoke({"budget": 9, "advanced": {"stagnation": 1}}, thread(), interrupt_after=["approve"], durability="sync")
    one_way, fork = list(graph.get_state_history(thread()))[:2]
    other_way = graph.update_state(fork.config, {"pending": None, "person_edits": [insert("another idea", 0.5)]})
    for config, expected in ((other_way, ["another idea"]), (one_way.config, ["first idea", "second idea"])):
        state = graph.invoke(None, config, durability="sync")
        assert titles(state) == expected
        assert_the_log_gives_the_tree(services, state)


def test_refine_checkpoints_are_dropped_and_decisions_kept(database: Path) -> None:
    services, _, _ = scripted(database, [TWO, NOTHING], FLAT)
    graph = compiled(services)
    start(graph, budget=9, stagnation=3)
    nexts = [past.next for past in graph.get_state_history(thread())][::-1]
    round_ = [("select",), ("instantiate",), ("instantiate",), ("co_evolve",), ("approve",)]
    assert nexts[:2] == [("__start__",), ("initialize",)]
    assert nexts[2:13] == [("approve",), *round_, *round_], "of four attempts the first and the last are there"
    writes = sqlite3.connect(database).execute(
        "SELECT count(*) FROM writes WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM checkpoints)"
    )
    assert writes.fetchone() == (0,)


def test_a_writer_that_was_overtaken_is_refused(database: Path) -> None:
    services, _, _ = scripted(database, [TWO, NOTHING], FLAT)
    slow, fast = compiled(services), compiled(services)
    stream = slow.stream({"budget": 3}, thread(), durability="sync")
    next(stream)
    done = resume(fast)
    with pytest.raises(StaleCheckpoint, match="advanced by another process"):
        list(stream)
    assert fast.get_state(thread()).values == done
    assert_the_log_gives_the_tree(services, done)


def test_a_run_that_another_process_holds_is_left_alone(database: Path) -> None:
    services, planner, _ = scripted(database, [TWO, NOTHING], FLAT)
    with Lease(database, "run"), pytest.raises(RunBusy, match=r"another process \(pid \d+\)"):
        start(compiled(services), budget=1)
    assert planner.asked == []
    assert resume(compiled(services))["status"] == "done"
