"""What the nodes do with models' replies and verdicts, seen through whole runs with scripted models."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeServices, compiled, edits, insert, program, resume, scripted, start, thread
from langgraph.types import Command

from state.effects import VerdictKey
from state.search import DRY_LIMIT, IDLE_FACTOR
from state.settings import Settings

ONE = edits(insert("first idea", 0.9))
NOTHING = edits()
BETTER = [program(f"J {score}") for score in range(100, 400, 10)]
FLAT = [program("J 100", f"number {index}") for index in range(100)]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "k.db"


def attempts(state: dict[str, Any]) -> list[int]:
    return [node["attempts"] for node in state["tree"]["nodes"]]


def logged(services: FakeServices, run: str = "run", branch: str = "main") -> list[Any]:
    return services(run, Settings()).archive.events(run, branch)


def test_a_run_with_the_playbook_ends_by_itself(database: Path) -> None:
    services = FakeServices(database)
    graph = compiled(services)
    state = start(graph, budget=30)
    assert graph.get_state(thread()).next == ()
    assert state["status"] == "done"
    assert state["stop_reason"] == f"the world model had no new intent in {DRY_LIMIT} turns"
    assert [node["status"] for node in state["tree"]["nodes"]] == ["closed", "closed", "closed"]
    assert state["result"]["held_out_score"] == state["best"]["score"]
    (row,) = services("run", Settings()).archive.runs()
    assert (row["run"], row["status"], row["evaluations"]) == ("run", "done", state["evaluations"])
    assert (row["best_score"], row["best_program"]) == (state["best"]["score"], state["best"]["program"])


@pytest.mark.parametrize("budget", [1, 2, 7])
def test_exactly_the_budget_is_spent(database: Path, budget: int) -> None:
    services, planner, coder = scripted(database, [ONE, NOTHING], BETTER)
    state = start(compiled(services), budget=budget)
    assert state["evaluations"] == len(services.evaluator.evaluated) == len(coder.asked) == budget
    assert state["stop_reason"] == f"the budget of {budget} evaluations is spent"
    assert len(planner.asked) == 1, "no edits are asked for that nobody could pursue"
    assert state["tree"]["nodes"][1]["status"] == "closed"
    assert state["best"]["score"] == pytest.approx(90 + 10 * budget)


def test_an_intent_is_closed_after_k_attempts_without_an_improvement(database: Path) -> None:
    two = edits(insert("first idea", 0.9), insert("second idea", 0.5))
    scores = [100, 101, 120, 119, 121, 90, 91, 91]
    replies = [program(f"J {score}", f"number {index}") for index, score in enumerate(scores)]
    services, _, _ = scripted(database, [two, NOTHING], replies)
    state = start(compiled(services), budget=8, stagnation=2, min_improvement=0.02)
    assert attempts(state) == [0, 5, 3]
    assert [node["score"] for node in state["tree"]["nodes"]] == [None, pytest.approx(120), pytest.approx(90)]
    assert [event.best for event in logged(services) if event.kind == "attempt"] == [
        True, False, True, False, False, True, False, False,
    ]  # fmt: skip


def test_a_child_starts_from_its_parents_program(database: Path) -> None:
    child = edits(insert("second idea", 0.5, parent="n1"))
    services, _, coder = scripted(database, [ONE, child, NOTHING], [program("J 150", "mark"), *FLAT])
    start(compiled(services), budget=4, stagnation=1)
    assert "# The program to start from" not in coder.prompt(0)
    assert "# The program to start from (J = 150.0)" in coder.prompt(2)
    assert "// mark" in coder.prompt(2)


def test_a_repeated_program_costs_no_evaluation_but_counts_as_an_attempt(database: Path) -> None:
    services, _, coder = scripted(database, [ONE, NOTHING], [program("J 100")])
    state = start(compiled(services), budget=9, stagnation=3)
    assert state["evaluations"] == len(services.evaluator.evaluated) == 1
    assert attempts(state) == [0, 4]
    assert [e.verdict for e in logged(services) if e.kind == "attempt"] == ["passed", *["duplicate"] * 3]
    assert "# Attempt 2: duplicate" in coder.prompt(2)


def test_unusable_programs_end_the_run_without_an_evaluation(database: Path) -> None:
    replies = [edits(insert(f"idea {index}", 0.5)) for index in range(99)]
    services, _, coder = scripted(database, replies, ["I would vectorise it."])
    state = start(compiled(services), budget=9, stagnation=2)
    assert state["evaluations"] == 0
    assert len(coder.asked) == state["attempts"] == IDLE_FACTOR * 2
    assert state["stop_reason"] == f"{IDLE_FACTOR * 2} attempts in a row brought no new program"
    assert state["result"]["best"] is None
    assert "no fenced code block" in coder.prompt(1)


def test_unusable_edits_end_the_run(database: Path) -> None:
    services, planner, coder = scripted(database, ["Let me think."], BETTER)
    state = start(compiled(services), budget=9)
    assert len(planner.asked) == 2 * (1 + DRY_LIMIT), "each turn has one repair"
    assert (coder.asked, state["evaluations"]) == ([], 0)
    assert state["stop_reason"] == f"the world model had no new intent in {DRY_LIMIT} turns"


def test_a_reply_with_half_a_surrogate_pair_does_not_end_the_run(database: Path) -> None:
    escaped = ONE.replace("first idea", "first \\ud83d idea")
    services, _, _ = scripted(database, [escaped, ONE, NOTHING], ["\ud83d", program("J 100", "\ud83d"), *FLAT])
    state = start(compiled(services), budget=2)
    assert state["evaluations"] == 2


@pytest.mark.parametrize("field", ["difficulty", "priority", "predicted_score"])
def test_a_number_beyond_all_bounds_does_not_end_the_run(database: Path, field: str) -> None:
    wild = insert("first idea", 0.9) | {field: 10**30}
    services, _, _ = scripted(database, [edits(wild, insert("second idea", 0.5)), ONE, NOTHING], FLAT)
    assert start(compiled(services), budget=1)["evaluations"] == 1


def test_a_repair_is_an_execution_of_its_own(database: Path) -> None:
    broken = edits(insert("first idea", 0.9), {"kind": "move", "node": "n1"})
    services, planner, _ = scripted(database, [broken, ONE, NOTHING], BETTER)
    graph = compiled(services)
    steps = [next(iter(update)) for update in graph.stream({"budget": 1}, thread(), durability="sync")]
    assert steps[:3] == ["initialize", "initialize", "approve"]
    first, repair = planner.asked[:2]
    assert [message.type for message in repair] == ["human", "ai", "human"]
    assert (repair[0].text, repair[1].text) == (first[0].text, broken)
    assert "edits[1]" in repair[2].text


def test_what_a_repair_left_unusable_is_reported_in_the_next_turn(database: Path) -> None:
    broken = edits(insert("first idea", 0.9), {"kind": "move", "node": "n1"})
    services, planner, _ = scripted(database, [broken, broken, NOTHING], FLAT)
    state = start(compiled(services), budget=9, stagnation=1)
    assert state["tree"]["nodes"][1]["intent"]["title"] == "first idea"
    assert "# Edits that were refused" in planner.prompt(2)
    assert "edits[1]" in planner.prompt(2)
    assert "edits[1]" not in planner.prompt(3), "it is told once"


def test_refused_edits_are_told_with_their_reason(database: Path) -> None:
    twice = edits(insert("first idea", 0.9), insert("the first idea", 0.8))
    services, planner, _ = scripted(database, [twice, NOTHING], FLAT)
    start(compiled(services), budget=9, stagnation=1)
    assert "redundant: n1 ('first idea', open) already says this" in planner.prompt(1)


@pytest.mark.parametrize("times", [1, 3])
def test_an_evaluator_that_is_away_parks_the_run_at_this_evaluation(database: Path, times: int) -> None:
    services, planner, coder = scripted(database, [ONE, NOTHING], BETTER)
    graph = compiled(services)
    start(graph, budget=1, stagnation=1, approve="edits")
    services.evaluator.away = times
    state = resume(graph, {"decisions": [{"type": "approve"}]})
    for _ in range(times):
        (waiting,) = state["__interrupt__"]
        assert waiting.value == {"kind": "parked", "reason": "the device is away", "run": "run"}
        assert graph.get_state(thread()).next == ("instantiate",)
        assert (state["evaluations"], state["attempts"], services.evaluator.evaluated) == (0, 0, [])
        state = resume(graph, True)
    assert state["status"] == "done"
    assert (state["evaluations"], len(coder.asked), len(planner.asked)) == (1, 1, 1)


def test_a_run_parks_for_its_baseline_and_for_its_held_out_measurement(database: Path) -> None:
    services, planner, _ = scripted(database, [ONE, NOTHING], BETTER)
    graph = compiled(services)
    services.evaluator.away = 1
    state = start(graph, budget=1, approve="edits")
    assert state["__interrupt__"][0].value["kind"] == "parked"
    assert planner.asked == []
    state = resume(graph, True)
    assert state["__interrupt__"][0].value["kind"] == "approval"
    approval = Command(resume={"decisions": [{"type": "approve"}]})
    graph.invoke(approval, thread(), interrupt_before=["finish"], durability="sync")
    services.evaluator.away = 1
    assert resume(graph)["__interrupt__"][0].value["kind"] == "parked"
    assert resume(graph, True)["result"]["held_out_score"] == pytest.approx(100)


def test_minutes_are_spent_by_calls_and_evaluations(database: Path) -> None:
    services, _, coder = scripted(database, [ONE, NOTHING], BETTER)
    ticks = itertools.count(step=30)
    services.clock = lambda: float(next(ticks))
    state = start(compiled(services), budget=9, max_minutes=2.0)
    assert state["elapsed_s"] == 120.0, "one turn, one program, its evaluation and its confirmation"
    assert (state["evaluations"], len(coder.asked)) == (1, 1)
    assert state["stop_reason"] == "the limit of 2 minutes is reached"


def test_a_seed_that_passes_is_where_root_intents_start_from(database: Path) -> None:
    seed = "// J 130\nvoid my_kernel() { /* seed */ }\n"
    services, _, coder = scripted(database, [ONE, NOTHING], [f"```cpp\n{seed}```", program("J 120"), program("J 140")])
    state = start(compiled(services), budget=2, seed_program=seed)
    assert "# The program to start from (J = 130.0)" in coder.prompt(0)
    assert "/* seed */" in coder.prompt(0)
    assert [e.verdict for e in logged(services) if e.kind == "attempt"] == ["passed", "duplicate", "passed", "passed"]
    assert state["evaluations"] == 2, "neither the seed nor its repetition counts"
    assert (state["best"]["node"], state["best"]["score"]) == ("n1", pytest.approx(140))


def test_a_seed_that_fails_is_left_aside(database: Path) -> None:
    services, _, coder = scripted(database, [ONE, NOTHING], BETTER)
    state = start(compiled(services), budget=1, seed_program="int main() {}")
    assert "# The program to start from" not in coder.prompt(0)
    assert (state["tree"]["nodes"][0]["attempts"], state["tree"]["nodes"][0]["program_id"]) == (1, None)
    assert state["evaluations"] == 1


def test_a_best_score_counts_as_its_confirmation_found_it(database: Path) -> None:
    services, _, _ = scripted(database, [ONE, NOTHING], [program("J 100"), program("J 200", "confirmed 90")])
    state = start(compiled(services), budget=2)
    assert state["best"]["score"] == pytest.approx(100)
    assert [e.score for e in logged(services) if e.kind == "attempt"] == [pytest.approx(100), pytest.approx(90)]


def test_a_pass_that_leaves_out_a_workload_is_the_best_of_nothing(database: Path) -> None:
    part, whole = program("J 300", "leaves out r64_c8192"), program("J 100")
    services, _, coder = scripted(database, [ONE, NOTHING], [part, whole])
    state = start(compiled(services), budget=2, seed_program="// J 200\n// leaves out r256_c1024\nvoid my_kernel() {}")
    assert (state["best"]["node"], state["best"]["score"]) == ("n1", pytest.approx(100))
    assert [(e.verdict, e.score, e.best) for e in logged(services) if e.kind == "attempt"] == [
        ("passed", 0.0, False), ("passed", 0.0, False), ("passed", pytest.approx(100), True),
    ]  # fmt: skip
    assert "# The program to start from" not in coder.prompt(0)
    assert "not measured on r64_c8192: it cannot be the best" in coder.prompt(1)
    assert state["tree"]["nodes"][0]["program_id"] is None


def test_a_confirmation_that_leaves_out_a_workload_does_not_make_a_best(database: Path) -> None:
    replies = [program("J 100"), program("J 200", "confirmed 210", "confirmation leaves out r64_c8192")]
    services, _, _ = scripted(database, [ONE, NOTHING], replies)
    state = start(compiled(services), budget=2)
    assert state["best"]["score"] == pytest.approx(100) == state["tree"]["nodes"][1]["score"]


def test_held_out_latencies_are_shown_to_no_model(database: Path) -> None:
    services, _, _ = scripted(database, [ONE, NOTHING], [BETTER[0]])
    start(compiled(services), "first", budget=1)
    assert services("first", Settings()).archive.verdicts_of(services.evaluator.evaluated[0])[-1][0] == "held_out"
    again, planner, coder = scripted(database, [ONE, NOTHING], BETTER)
    start(compiled(again), "second", budget=2, stagnation=1)
    prompts = [message.text for call in (*planner.asked, *coder.asked) for message in call]
    assert any("r64_c8192: 100 us" in text for text in prompts)
    assert not [text for text in prompts if "r333_c1001" in text]


def test_a_best_program_that_fails_on_held_out_inputs_is_said_to(database: Path) -> None:
    services, _, _ = scripted(database, [ONE, NOTHING], [program("J 100", "held out: wrong")])
    state = start(compiled(services), budget=1)
    assert (state["result"]["held_out_score"], state["result"]["gap"]) == (0.0, None)
    assert state["result"]["held_out_verdict"].startswith("compile error")


def test_the_world_model_hears_of_the_best_programs_weak_workloads(database: Path) -> None:
    child = edits(insert("second idea", 0.5, parent="n1"))
    services, planner, coder = scripted(database, [ONE, child, ONE, NOTHING], [program("J 150"), *FLAT])
    start(compiled(services), budget=5, stagnation=1)
    weak = "r256_c1024 1.50x (noise 0.0%), r64_c8192 1.50x (noise 0.0%), r2048_c384 1.50x (noise 0.0%)"
    assert f"Its gain over the baseline is least on {weak}." in coder.prompt(2)
    assert "Its gain is least on" not in planner.prompt(1), "its timings are shown as the outcome's"
    assert f"Its gain is least on {weak}." in planner.prompt(2)


def test_another_run_reuses_verdicts_and_still_counts_them(database: Path) -> None:
    services, _, _ = scripted(database, [ONE, NOTHING], BETTER)
    start(compiled(services), "first", budget=3)
    again, _, coder = scripted(database, [ONE, NOTHING], BETTER)
    state = start(compiled(again), "second", budget=3)
    assert (state["evaluations"], len(coder.asked), again.evaluator.evaluated) == (3, 3, [])
    assert [row["run"] for row in again("second", Settings()).archive.runs()] == ["second", "first"]


def test_latencies_of_other_hardware_are_not_shown(database: Path) -> None:
    services, planner, coder = scripted(database, [ONE, NOTHING], BETTER)
    start(compiled(services), "here", budget=1)
    archive, task = services("here", Settings()).archive, services.task
    (found,) = services.evaluator.evaluated
    elsewhere = VerdictKey(
        program=found, task_hash=task.hash, evaluator="stated-1", hardware="other", purpose="attempt"
    )
    archive.verdict(elsewhere, lambda: services.evaluator._passed(999.0))
    again, planner, coder = scripted(database, [ONE, NOTHING], [BETTER[0]])
    start(compiled(again), "again", budget=2, stagnation=1)
    assert "for this intent so far (J = 100.0)" in coder.prompt(1)
    assert "9.99x" not in planner.prompt(1)


def test_going_back_to_the_very_start_samples_anew(database: Path) -> None:
    services, planner, _ = scripted(database, [ONE, edits(insert("another idea", 0.9)), NOTHING], FLAT)
    graph = compiled(services)
    start(graph, budget=1)
    begin = [past for past in graph.get_state_history(thread()) if past.next == ("initialize",)][-1]
    state = graph.invoke(None, begin.config, durability="sync")
    assert state["tree"]["nodes"][1]["intent"]["title"] == "another idea"
    assert planner.prompt(1) == planner.prompt(0)
    assert len(services.evaluator.evaluated) == 2


@pytest.mark.parametrize("written", [None, "garbage", 7])
def test_a_channel_that_a_person_spoilt_does_not_end_the_run(database: Path, written: object) -> None:
    services, _, _ = scripted(database, [ONE, NOTHING], FLAT)
    graph = compiled(services)
    graph.invoke({"budget": 1}, thread(), durability="sync", interrupt_before=["approve"])
    graph.update_state(thread(), {"person_edits": written})
    assert resume(graph)["evaluations"] == 1
