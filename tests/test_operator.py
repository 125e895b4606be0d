"""Somebody outside answers the prompts: whole runs, wrong answers, and the commands."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeServices, StatedEvaluator, compiled, edits, insert, program, resume, start, thread
from langchain_core.messages import AIMessage, HumanMessage
from small_runs import ksearch, small_task
from test_cli import Place

from graph.build import build_graph
from graph.report import label_of
from graph.running import Runs
from nodes.models.named import ModelError, model_named
from nodes.models.operator import LABEL, OperatorModel, transcript
from nodes.models.playbook import PlaybookModel
from nodes.replies import awaited_prompts
from prompts.rendering import Templates
from state.archive import Archive
from state.effects import Prompt, Reply
from state.settings import Settings
from tasks.playbook import LABEL as PLAYBOOK
from tasks.playbook import load_playbook
from tasks.task import load_task

Answer = Callable[[str], str]
ONE = edits(insert("first idea", 0.9))


@pytest.fixture
def services(tmp_path: Path) -> FakeServices:
    """Both roles are an operator's; programs state their scores."""
    made = FakeServices(tmp_path / "k.db", OperatorModel())
    made.evaluator = StatedEvaluator(made.task)
    return made


def by_the_playbook(folder: Path) -> Answer:
    """What the playbook's model replies to a prompt."""
    model = PlaybookModel(playbook=load_playbook(folder))
    return lambda text: model.invoke([HumanMessage(text)]).text


def waiting(state: dict[str, Any]) -> dict[str, Any]:
    """What the run waits with."""
    (interrupt,) = state["__interrupt__"]
    value: dict[str, Any] = interrupt.value
    assert value["kind"] == "prompts"
    return value


def operated(graph: Any, answer: Answer, **given: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The state of a run that is done, and every interrupt on the way."""
    state, seen = start(graph, **given), []
    while "__interrupt__" in state:
        seen.append(waiting(state))
        state = resume(graph, {one["id"]: answer(one["text"]) for one in seen[-1]["prompts"]})
    return state, seen


def archive(services: FakeServices) -> Archive:
    return services("run", Settings()).archive


def told(state: dict[str, Any]) -> dict[str, Any]:
    """All of a final state that follows from what was replied and judged."""
    left_out = ("settings", "elapsed_s", "model", "advanced")
    return {key: value for key, value in state.items() if key not in left_out}


@pytest.mark.parametrize("samples", [1, 3])
def test_a_run_that_is_answered_is_the_run_of_a_model_that_says_the_same(tmp_path: Path, samples: int) -> None:
    usual = FakeServices(tmp_path / "usual.db")
    given: dict[str, Any] = {"budget": 9, "stagnation": 2, "samples": samples}
    expected = start(compiled(usual), **given)
    asked = FakeServices(tmp_path / "asked.db", OperatorModel())
    state, seen = operated(compiled(asked), by_the_playbook(asked.task.playbook), **given, model="operator")
    assert told(state) == told(expected)
    assert archive(asked).plain_events("run", "main", 0) == archive(usual).plain_events("run", "main", 0)
    roles = [[one["role"] for one in request["prompts"]] for request in seen]
    assert roles.count(["world_model"]) == state["turns"]
    assert sum(batch[0] == "coder" for batch in roles) == state["attempts"]
    assert roles[1] == ["coder"] * samples
    spent = archive(asked).spending("run")
    assert {(one.role, one.model, one.input_tokens, one.output_tokens) for one in spent} == {
        ("coder", "operator", 0, 0), ("world_model", "operator", 0, 0),
    }  # fmt: skip
    assert sum(one.calls for one in spent) == sum(map(len, roles)) == state["asked"]["calls"]


@pytest.mark.parametrize(("ours", "theirs"), [("coder", "world_model"), ("world_model", "coder")])
def test_one_role_is_an_operators_and_the_other_a_models(tmp_path: Path, ours: str, theirs: str) -> None:
    usual = FakeServices(tmp_path / "usual.db")
    expected = start(compiled(usual), budget=5, stagnation=2)
    mixed = FakeServices(tmp_path / "mixed.db")
    if ours == "coder":
        mixed.coder = OperatorModel()
    else:
        mixed.model = OperatorModel()
    answer = by_the_playbook(mixed.task.playbook)
    state, seen = operated(compiled(mixed), answer, budget=5, stagnation=2, **{ours: "operator"})
    assert told(state) == told(expected)
    assert {one["role"] for request in seen for one in request["prompts"]} == {ours}
    calls = {(one.role, one.model) for one in archive(mixed).spending("run")}
    assert calls == {(ours, "operator"), (theirs, "playbook")}


def test_an_operator_may_take_over(tmp_path: Path) -> None:
    services = FakeServices(tmp_path / "k.db")
    services.later = OperatorModel()
    state = start(compiled(services), budget=4, stagnation=9, switch_at=2, switch_to="operator")
    assert state["evaluations"] == 2 and waiting(state)["prompts"][0]["role"] == "coder"


def test_a_prompt_says_all_that_a_model_is_told(services: FakeServices) -> None:
    (one,) = waiting(start(compiled(services), budget=3, model="operator"))["prompts"]
    assert services.task.specification.strip() in one["text"]
    assert '{"kind": "insert", "parent":' in one["text"] and '{"kind": "prune", "node":' in one["text"]
    assert one["format"] == 'one JSON object {"edits": [...]}'


def test_a_plain_text_answers_a_prompt_that_waits_alone(services: FakeServices) -> None:
    graph = compiled(services)
    request = waiting(start(graph, budget=1))
    assert "the reply alone as a string" in request["how"]
    assert waiting(resume(graph, ONE))["prompts"][0]["role"] == "coder"
    state = resume(graph, program("J 120"))
    assert state["evaluations"] == 1 and state["best"]["score"] == pytest.approx(120)


@pytest.mark.parametrize("named", [False, True])
def test_edits_that_a_form_has_read_as_json_are_a_reply(services: FakeServices, named: bool) -> None:
    graph = compiled(services)
    (one,) = waiting(start(graph, budget=1))["prompts"]
    state = resume(graph, {one["id"]: json.loads(ONE)} if named else json.loads(ONE))
    assert waiting(state)["prompts"][0]["role"] == "coder"
    assert state["tree"]["nodes"][1]["intent"]["title"] == "first idea"


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (True, "the value was a bool"),
        ("", "the value was empty"),
        ({"ID": "\n"}, "was no text"),
        ([ONE], "the value was a list"),
        ({"n0": ONE}, "no prompt with the id 'n0' waits"),
        ({"world_model": ONE}, "the reply to world_model-0-"),
        ({"ID": 7}, "was no text"),
        ({"ID": {"kind": "insert"}}, "was no text"),
        ({"ID": None}, "was no text"),
    ],
)
def test_a_value_of_the_wrong_shape_is_asked_for_again(services: FakeServices, value: Any, problem: str) -> None:
    graph = compiled(services)
    before = waiting(start(graph, budget=1))
    (one,) = before["prompts"]
    if isinstance(value, dict) and "ID" in value:
        value = {one["id"]: value["ID"]}
    again = waiting(resume(graph, value))
    assert problem in again["problem"] and before["problem"] is None
    assert {**again, "problem": None} == before
    assert archive(services).spending("run") == []
    assert waiting(resume(graph, {one["id"]: ONE}))["prompts"][0]["role"] == "coder"


def test_a_batch_is_asked_for_at_once_and_what_was_given_of_it_is_kept(services: FakeServices) -> None:
    graph = compiled(services)
    start(graph, budget=3, samples=3)
    request = waiting(resume(graph, ONE))
    first, second, third = (one["id"] for one in request["prompts"])
    assert all(f"sample {n} of 3" in request["prompts"][n - 1]["text"] for n in (1, 2, 3))
    assert "all at once" in request["how"]
    again = waiting(resume(graph, program("J 100")))
    assert "was a str" in again["problem"] and len(again["prompts"]) == 3
    again = waiting(resume(graph, {third: program("J 130"), "coder-9-abcdef": program("J 1")}))
    assert again["problem"] == (
        f"no prompt with the id 'coder-9-abcdef' waits; the reply to {first} is missing; "
        f"the reply to {second} is missing"
    )
    assert [one["id"] for one in again["prompts"]] == [first, second]
    assert [one.role for one in archive(services).spending("run")] == ["world_model"], "nothing before all are there"
    state = resume(graph, {first: program("J 110"), second: program("J 120")})
    events = [event for event in archive(services).events("run", "main") if event.kind == "attempt"]
    assert [round(event.score or 0) for event in events] == [110, 120, 130]
    assert state["evaluations"] == 3


def test_equal_prompts_of_a_batch_are_asked_once(tmp_path: Path, services: FakeServices) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "coder.md.j2").write_text("Write {{ task.entry_point }}.")
    services.templates = Templates(tmp_path / "own")
    graph = compiled(services)
    start(graph, budget=2, samples=2)
    (one,) = waiting(resume(graph, ONE))["prompts"]
    assert one["text"] == "Write my_kernel.\n"
    resume(graph, program("J 110"))
    events = [event for event in archive(services).events("run", "main") if event.kind == "attempt"]
    assert [event.verdict for event in events] == ["passed", "duplicate"]


def test_a_reply_without_a_program_counts_as_any_models(services: FakeServices) -> None:
    graph = compiled(services)
    start(graph, budget=3, stagnation=2)
    resume(graph, ONE)
    state = resume(graph, "I have no idea.")
    assert (state["last"]["verdict"], state["action"]["stagnation"], state["evaluations"]) == ("unusable", 1, 0)
    assert "no fenced code block" in waiting(state)["prompts"][0]["text"], "and the operator is told why"


def test_the_repair_turn_is_a_prompt_that_holds_everything(services: FakeServices) -> None:
    graph = compiled(services)
    first = waiting(start(graph, budget=3))["prompts"][0]
    state = resume(graph, "Let me think about it.")
    (again,) = waiting(state)["prompts"]
    assert state["repair"] is not None and again["id"] != first["id"]
    assert again["text"].startswith(first["text"].rstrip())
    assert "Let me think about it." in again["text"] and "the reply holds no JSON object" in again["text"]
    assert waiting(resume(graph, ONE))["prompts"][0]["role"] == "coder"
    assert archive(services).spending("run")[0].calls == 2


def test_intents_after_a_round_are_asked_of_the_operator_too(services: FakeServices) -> None:
    graph = compiled(services)
    start(graph, budget=9, stagnation=1)
    resume(graph, ONE)
    resume(graph, program("J 120"))
    state = resume(graph, program("J 80"))
    (one,) = waiting(state)["prompts"]
    assert (one["role"], state["round"]) == ("world_model", 1)
    assert "n1 was closed. Its best program scores J = 120.0" in one["text"]
    assert state["action"] is None and state["tree"]["nodes"][1]["status"] == "closed"
    state = resume(graph, edits(insert("second idea", 0.4, parent="n1")))
    assert state["tree"]["nodes"][2]["intent"]["title"] == "second idea"


def test_an_evaluator_that_goes_away_after_the_reply_asks_for_nothing_again(services: FakeServices) -> None:
    graph = compiled(services)
    start(graph, budget=1)
    resume(graph, ONE)
    services.evaluator.away = 1
    state = resume(graph, program("J 120"))
    assert state["__interrupt__"][0].value["kind"] == "parked"
    state = resume(graph, True)
    assert state["evaluations"] == 1 and not state["last"]["reused"]


def test_a_verdict_from_an_earlier_run_is_called_reused(services: FakeServices) -> None:
    graph = compiled(services)
    for run in ("run", "other"):
        start(graph, budget=1, run=run)
        resume(graph, ONE, run=run)
        state = resume(graph, program("J 120"), run=run)
        assert state["last"]["reused"] is (run == "other")


def test_committed_replies_are_not_asked_for_again(services: FakeServices) -> None:
    """As after kill -9 between the commit and the next checkpoint; tests/test_crash.py kills for real."""
    graph = compiled(services)
    state = start(graph, budget=1)
    (one,) = awaited_prompts(state, archive(services))
    prompt = Prompt(template=one.template, variables=one.variables, text=one.text)
    archive(services).keep_reply(one.key, prompt, Reply(text=ONE, model="operator"), 0.0)
    assert awaited_prompts(state, archive(services)) == ()
    assert waiting(resume(graph))["prompts"][0]["role"] == "coder"


def test_a_person_may_edit_the_tree_while_prompts_wait(services: FakeServices) -> None:
    graph = compiled(services)
    start(graph, budget=9, stagnation=1)
    before = waiting(resume(graph, ONE))
    graph.update_state(thread(), {"person_edits": [insert("a person's", 0.3)]})
    assert waiting(resume(graph)) == before
    resume(graph, program("no score"))
    state = resume(graph, edits())
    assert state["tree"]["nodes"][2]["intent"]["title"] == "a person's"


def test_a_graph_without_a_saver_waits_with_the_same_request(services: FakeServices) -> None:
    graph = build_graph(services).compile()
    given = {"budget": 3, "model": "operator"}
    request = waiting(graph.invoke(given, thread()))
    services._made.clear()
    assert request == waiting(start(compiled(services), **given))


def test_lone_surrogates_of_a_pasted_reply_do_no_harm(services: FakeServices) -> None:
    graph = compiled(services)
    start(graph, budget=1)
    state = resume(graph, edits(insert("first idea", 0.9)) + "\ud83d")
    assert waiting(state)["prompts"][0]["role"] == "coder"


def test_the_turns_before_are_part_of_the_text() -> None:
    said = transcript([HumanMessage("plan\n"), AIMessage("no"), HumanMessage("again")])
    assert said == "plan\n\n# Your reply to this was\n\nno\n\n# Now\n\nagain\n"


def test_results_say_that_an_operator_answered() -> None:
    assert label_of(Settings(model="operator")) == LABEL
    assert label_of(Settings(model="playbook", coder="operator")) == f"{PLAYBOOK}; {LABEL}"
    assert label_of(Settings(model="openai:m")) is None


def test_the_name_is_operator_and_nothing_more(services: FakeServices) -> None:
    assert isinstance(model_named("operator", services.task), OperatorModel)
    with pytest.raises(ModelError, match=r"operator \(a person"):
        model_named("operator:me", services.task)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    small_task(tmp_path)
    return Place(tmp_path)


def begun(place: Place, *options: object) -> str:
    """The id of a run that waits for its first intents."""
    quick = ("--budget", "2", "--stagnation", "1", "--threads", "1")
    ran = place("run", "./rows", "--model", "operator", *quick, *options)
    assert ran.returncode == 75, ran.stderr
    assert LABEL in ran.stdout
    assert "a prompt to the world model waits for a reply" in ran.stderr and "ksearch answer" in ran.stderr
    (row,) = json.loads(place("runs", "--json").stdout)
    assert (row["status"], row["model_calls"]) == ("waiting for a reply", 0)
    return str(row["run"])


def calls(place: Place) -> int:
    return int(json.loads(place("runs", "--json").stdout)[0]["model_calls"])


def test_a_script_answers_a_whole_run_by_the_commands(place: Place) -> None:
    run = begun(place, "--samples", "2")
    answer = by_the_playbook(load_task(place.folder / "rows").playbook)
    done: subprocess.CompletedProcess[str] | None = None
    batches = []
    (place.folder / "work").mkdir()
    while done is None or done.returncode == 75:
        wrote = ksearch("prompt", run, "--out", "work", cwd=place.folder)
        assert wrote.returncode == 0, wrote.stderr
        asked = [line.removeprefix("wrote ") for line in wrote.stdout.splitlines() if line.startswith("wrote ")]
        for name in asked:
            reply = answer((place.folder / name).read_text())
            (place.folder / name.replace(".prompt.md", ".reply.md")).write_text(reply)
        batches.append(len(asked))
        done = ksearch("answer", run, "--file", "work", cwd=place.folder)
    assert done.returncode == 0, done.stderr
    assert batches[:2] == [1, 2]
    assert LABEL in done.stdout and "Best: J" in done.stdout
    shown = json.loads(ksearch("cost", run, "--json", cwd=place.folder).stdout)
    assert {(row["model"], row["input_tokens"], row["output_tokens"]) for row in shown} == {("operator", 0, 0)}
    assert sum(row["calls"] for row in shown) == sum(batches)
    refused = ksearch("prompt", run, cwd=place.folder)
    assert refused.returncode == 2 and "(it is done)" in refused.stderr


def test_replies_are_checked_before_they_count(place: Place) -> None:
    run = begun(place)
    printed = place("prompt", "last")
    assert printed.returncode == 0 and printed.stdout.startswith("You plan the search for a faster kernel.")
    assert "\x1b" not in printed.stdout and "ksearch answer" in printed.stderr
    assert "Now: waiting for a reply" in place("tree", run).stdout
    assert "Now: waiting for a reply" in place("show", run).stdout
    again = place("resume", run)
    assert again.returncode == 75 and "a prompt to the world model waits" in again.stderr

    typo = ONE[:-2]
    refused = place("answer", run, "--file", "-", stdin=typo)
    assert refused.returncode == 2 and "the JSON cannot be read" in refused.stderr and "--anyway" in refused.stderr
    for files, problem in (
        (["none.md"], "cannot be read"), (["-", "-"], "1 prompt waits"), ([str(place.folder)], "world_model-0-"),
    ):  # fmt: skip
        options = [part for file in files for part in ("--file", file)]
        refused = place("answer", run, *options, stdin=ONE)
        assert refused.returncode == 2 and problem in refused.stderr
    assert calls(place) == 0

    taken = place("answer", run, "--anyway", "--file", "-", stdin=typo)
    assert taken.returncode == 75 and calls(place) == 1
    (one,) = json.loads(place("prompt", run, "--json").stdout)["prompts"]
    assert typo in one["text"] and "the JSON cannot be read" in one["text"]
    (place.folder / "reply.json").write_text(ONE)
    good = place("answer", run, "--file", "reply.json")
    assert good.returncode == 75 and "round 1: n1 first idea" in good.stdout and "to the coder waits" in good.stderr
    blank = place("answer", run, "--anyway", "--file", "-", stdin="\n")
    assert blank.returncode == 75 and "the last answer was not taken: the reply to coder-0-" in blank.stderr
    refused = place("answer", run, "--file", "-", stdin="```cpp\nint x;\n```")
    assert refused.returncode == 2 and "cannot be used" in refused.stderr and calls(place) == 2


def test_a_run_killed_after_its_replies_were_kept_goes_on_without_them(place: Place) -> None:
    run = begun(place)
    with closing(Runs(place.folder / ".ksearch" / "ksearch.db")) as runs:
        (one,) = awaited_prompts(runs.state(run), runs.archive)
        prompt = Prompt(template=one.template, variables=one.variables, text=one.text)
        runs.archive.keep_reply(one.key, prompt, Reply(text=ONE, model="operator"), 0.0)
    assert place.newest()["status"] == "paused"
    refused = place("prompt", run)
    assert refused.returncode == 2 and "(it is paused)" in refused.stderr
    resumed = place("resume", run)
    assert resumed.returncode == 75 and "to the coder waits" in resumed.stderr
    assert calls(place) == 1


def test_several_prompts_are_numbered_and_answered_in_order(place: Place) -> None:
    run = begun(place, "--samples", "2")
    (place.folder / "one").write_text(ONE)
    assert "2 prompts to the coder wait" in place("answer", run, "--file", "one").stderr
    printed = place("prompt", run).stdout
    ids = [one["id"] for one in json.loads(place("prompt", run, "--json").stdout)["prompts"]]
    for number, name in enumerate(ids, 1):
        assert f"===== prompt {number} of 2: {name} =====\n" in printed
    few = place("answer", run, "--file", "one")
    assert few.returncode == 2 and ids[0] in few.stderr and ids[1] in few.stderr
    assert calls(place) == 1
