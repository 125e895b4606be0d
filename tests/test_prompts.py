"""What models are asked, word by word, and what their replies are taken to say.

UPDATE_SNAPSHOTS=1 writes the files in tests/snapshots anew; read their diff before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fakes import SCAFFOLD
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prompts import coder, feedback, world_model
from prompts.coder import Assignment
from prompts.programs import parse_program
from prompts.rendering import prompt_hash
from prompts.world_model import Situation, parse_edits, refusal
from state.edits import Attempt, Close, Event, Insert, Prune, Rejection, Update, apply
from state.effects import Prompt
from state.program import Language, Program
from state.search import Best, LastAttempt, Outcome
from state.tree import Intent, SearchTree, new_tree
from state.verdict import Passed, WorkloadTiming
from tasks.evaluator import BaselineTiming
from tasks.task import Task, Workload, load_task
from tasks.workloads import listed

SNAPSHOTS = Path(__file__).parent / "snapshots"
TASK = load_task(SCAFFOLD)
QUIET = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def same_as_snapshot(name: str, prompt: Prompt) -> None:
    file = SNAPSHOTS / f"{name}.md"
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        file.write_text(prompt.text, encoding="utf-8")
    assert prompt.text == file.read_text(encoding="utf-8"), f"see {file}; UPDATE_SNAPSHOTS=1 accepts the new text"


def situation(tree: SearchTree, **changes: object) -> Situation:
    start = {
        "task": TASK, "hardware": "Example CPU, 8 cores, AVX2", "tree": tree, "round": 0, "evaluations": 0,
        "baseline": "r256_c1024: eager 100 us; r64_c8192: cdist 240 us", "budget": 120, "best": None, "outcome": None,
        "detail": "", "rejected": (), "words": (),
    }  # fmt: skip
    return Situation(**{**start, **changes})  # type: ignore[arg-type]


def grown(*more: Event) -> SearchTree:
    """n1 closed with a program, n2 closed without, n3 open, n4 open and a person's, n5 pruned."""
    events = [
        Insert(parent="n0", title="Independent partial sums", priority=0.7, predicted_score=150.0, confidence=0.6,
               difficulty=2, evidence="the reduction is a chain of dependent additions"),
        Insert(parent="n0", title="Prefetch by hand", priority=0.3),
        Insert(parent="n1", title="Rows over the cores", priority=0.812345, predicted_score=250.0, difficulty=1),
        Insert(parent="n0", title="Non-temporal loads \u00fc", priority=0.25, author="person"),
        Insert(parent="n0", title="Sort the rows", priority=0.1),
        Prune(node="n5", evidence="the order of the rows does not matter"),
        Attempt(node="n1", program_id="p1", verdict="passed", score=141.26, best=True),
        Close(node="n1"),
        Attempt(node="n2", program_id="p2", verdict="compile_error"),
        Close(node="n2"),
        *more,
    ]  # fmt: skip
    applied = apply(new_tree(TASK.title), list(events))
    assert applied.rejected == ()
    return applied.tree


def test_world_model_prompt_at_the_start() -> None:
    same_as_snapshot("world_model_start", world_model.ask(situation(new_tree(TASK.title))))


def test_world_model_prompt_after_an_intent_with_refused_edits_and_a_persons_words() -> None:
    outcome = Outcome(node="n1", program="p1", score=141.26, parent_score=100.5, verdicts=("compile_error", "J 141.3"))
    prompt = world_model.ask(
        situation(
            grown(), round=2, evaluations=9, best=Best(node="n1", program="p1", score=141.26, noise=0.01),
            outcome=outcome, detail=feedback.timings(PASSED, TASK),
            words=("on your prune of n3: it pays off on long rows",),
            rejected=(refusal(Rejection(event=Prune(node="n1"), reason="n1 has been evaluated")),),
        )
    )  # fmt: skip
    same_as_snapshot("world_model_outcome", prompt)


def test_world_model_prompt_after_an_intent_that_failed() -> None:
    outcome = Outcome(node="n2", program=None, score=None, parent_score=None, verdicts=("compile_error", "unusable"))
    prompt = world_model.ask(
        situation(grown(), round=3, evaluations=10, outcome=outcome, detail="Last message: error: expected ';'")
    )
    same_as_snapshot("world_model_failed", prompt)


def test_world_model_prompt_when_the_frontier_is_empty() -> None:
    best = Best(node="n1", program="p1", score=141.26, noise=0.01)
    tree = grown(Prune(node="n3"), Prune(node="n4", evidence="no gain"))
    prompt = world_model.ask(situation(tree, round=3, evaluations=10, best=best, weakest=feedback.weakest(PASSED)))
    same_as_snapshot("world_model_empty", prompt)


def test_the_limit_on_difficulty_is_told() -> None:
    tree = grown()
    assert "Intents of a\ndifficulty above 2 wait" in world_model.ask(situation(tree, max_difficulty=2)).text
    assert "difficulty above" not in world_model.ask(situation(tree)).text


def test_repair_prompt() -> None:
    errors = ("edits[0]: insert.title: Field required", "edits[2]: the kind 'move' is unknown")
    same_as_snapshot("repair", world_model.ask_again(errors))


PASSED = Passed(
    timings=(
        WorkloadTiming(workload="r256_c1024", latency_us=51.4, baseline_us=100.2, baseline="eager", noise=0.01),
        WorkloadTiming(workload="r64_c8192", latency_us=230.0, baseline_us=240.0, baseline="cdist", noise=0.01),
    ),
    noise=0.01,
)
PARENT = Program(language="cpp", source="// the parent\nvoid my_kernel() {}\n\n")
BEST = Program(language="cpp", source="// the best so far\nvoid my_kernel() {}\n")
FAILED = Program(language="cpp", source="// the last one\nvoid my_kernel() { oops }\n")


def assignment(**changes: object) -> Assignment:
    first = {
        "task": TASK, "language": "cpp", "hardware": "Example CPU, 8 cores, AVX2",
        "intent": Intent(title="Independent partial sums", description="Keep one partial sum per vector lane."),
        "attempt": 1, "parent": None, "parent_score": None, "best": None, "best_verdict": None, "last": None,
        "last_program": None,
    }  # fmt: skip
    return Assignment(**{**first, **changes})  # type: ignore[arg-type]


def last(verdict: str, message: str, program: Program | None, score: float = 0.0) -> LastAttempt:
    return LastAttempt(node="n1", ordinal=4, program=program and program.id, verdict=verdict, score=score,
                       message=message)  # fmt: skip


def test_coder_prompt_for_a_first_attempt_from_the_specification() -> None:
    same_as_snapshot("coder_first", coder.ask(assignment()))


@pytest.mark.parametrize("language", ["python", "triton", "cuda"])
def test_coder_prompt_in_another_language(language: Language) -> None:
    task = TASK.model_copy(update={"languages": (language,)})
    same_as_snapshot(f"coder_{language}", coder.ask(assignment(task=task, language=language)))


def test_coder_prompt_with_parent_best_and_a_failure() -> None:
    prompt = coder.ask(
        assignment(
            intent=Intent(title="Independent partial sums"), attempt=3, parent=PARENT, parent_score=100.5, best=BEST,
            best_verdict=PASSED, last=last("compile_error", "a.cpp:2: error: 'oops' was not declared", FAILED),
            last_program=FAILED,
        )
    )  # fmt: skip
    same_as_snapshot("coder_failure", prompt)


def test_coder_prompt_after_an_unusable_reply() -> None:
    message = "the reply could not be used: the reply has no fenced code block"
    same_as_snapshot("coder_unusable", coder.ask(assignment(attempt=2, last=last("unusable", message, None))))


def test_coder_prompt_after_a_pass_shows_the_program_once() -> None:
    passed = last("passed", "passed, J 142.6 (noise 1.0%)", BEST, score=142.6)
    prompt = coder.ask(assignment(attempt=2, best=BEST, best_verdict=PASSED, last=passed, last_program=BEST))
    assert prompt.text.count("// the best so far") == 1
    same_as_snapshot("coder_passed", prompt)


def with_workloads(count: int) -> Task:
    """The scaffold with so many workloads, each of other dimensions but for a constant third one."""
    loads = [
        Workload(name=f"w{index}", dims={"rows": 1 + index * 7 % count, "columns": 128 * (1 + index % 3)})
        for index in range(count)
    ]  # fmt: skip
    return TASK.model_copy(update={"workloads": tuple(loads)})


def passed_on(task: Task) -> Passed:
    """A pass whose gain grows from workload to workload, from 0.5x on."""
    timings = [
        WorkloadTiming(workload=load.name, latency_us=20.0, baseline_us=10.0 + index, baseline="eager", noise=0.03)
        for index, load in enumerate(task.workloads)
    ]  # fmt: skip
    return Passed(timings=tuple(timings), noise=0.01)


def test_coder_prompt_with_many_workloads() -> None:
    task = with_workloads(48)
    passed = last("passed", "passed, J 90.0 (noise 1.0%)", FAILED, score=90.0)
    prompt = coder.ask(
        assignment(task=task, attempt=3, parent=PARENT, parent_score=100.5, parent_verdict=passed_on(task), best=BEST,
                   best_verdict=passed_on(task), last=passed, last_program=FAILED, last_verdict=passed_on(task))
    )  # fmt: skip
    same_as_snapshot("coder_many_workloads", prompt)


@pytest.mark.parametrize("count", [13, 48, 500])
def test_prompts_do_not_grow_with_the_number_of_workloads(count: int) -> None:
    task, least = with_workloads(count), with_workloads(13)
    rows = [BaselineTiming(workload=load.name, latency_us={"eager": 9.0, "cdist": 8.0}, strongest="cdist")
            for load in task.workloads]  # fmt: skip

    def lines(about: Task) -> int:
        shown = feedback.timings(passed_on(about), about)
        return len(f"{about.workload_lines}\n{shown}".splitlines())

    assert lines(task) <= lines(least) + len(TASK.dims) * 2
    assert len(feedback.baseline_line(rows)) < 120 and len(feedback.weakest(passed_on(task))) < 100
    assert feedback.baseline_line(rows[:3]).count("cdist 8.00 us") == 3


def test_of_many_workloads_the_ends_are_named_with_their_dimensions() -> None:
    task = with_workloads(48)
    text = feedback.timings(passed_on(task), task)
    assert text.startswith("Slower than the baseline on 9 of 48 workloads, within noise of it on 3, faster on 36; ")
    assert [line.split(":")[0] for line in text.splitlines() if line.startswith("- ")] == [
        "- w0", "- w1", "- w2", "- w3", "- w4", "- w45", "- w46", "- w47",
    ]  # fmt: skip
    assert "- w1: 20.0 us, baseline (eager) 11.0 us, 0.55x, noise 3.0% (rows = 8, columns = 256)" in text
    assert feedback.weakest(passed_on(task)).startswith("w0 0.50x (noise 3.0%), w1 0.55x")


def test_workloads_are_listed_one_by_one_up_to_twelve_and_then_by_their_ranges() -> None:
    assert with_workloads(12).workload_lines.count("\n") == 11
    mixed = [(f"w{index}", {"n": index * index, "mode": f"{'x' * 60}{index}", "causal": index % 2 == 0, "eps": 1e-6})
             for index in range(13)]  # fmt: skip
    assert listed(mixed).splitlines() == [
        "13 workloads, made of",
        "- n: 13 values from 0 to 144",
        "- mode: 13 different values",
        "- causal: False, True",
        "- eps = 1e-06 in all",
        "Where one of these is smallest or largest:",
        f"- w0: n = 0, mode = {'x' * 37}..., causal = True, eps = 1e-06",
        f"- w12: n = 144, mode = {'x' * 37}..., causal = True, eps = 1e-06",
    ]


def test_a_prompt_is_archived_without_the_programs_text() -> None:
    prompt = coder.ask(assignment(parent=PARENT, parent_score=1.0))
    assert "the parent" in prompt.text
    assert "the parent" not in prompt.variables
    assert PARENT.id in prompt.variables
    assert TASK.hash in prompt.variables
    assert prompt.template.startswith("coder.md.j2@")
    assert prompt_hash(prompt) != prompt_hash(coder.ask(assignment()))


INSERT = '{"kind": "insert", "parent": "n0", "title": "a", "priority": 0.5}'
OTHER = '{"kind": "insert", "parent": "n0", "title": "b", "priority": 0.5}'
EDITS = f'{{"edits": [{INSERT}]}}'
DRAFT = f'{{"edits": [{OTHER}]}}'


@pytest.mark.parametrize(
    "reply",
    [
        EDITS, f"```json\n{EDITS}\n```", f"```\n{EDITS}\n```", f"~~~json\n{EDITS}\n~~~", f"````\n{EDITS}\n````",
        f"  ```json\n  {EDITS}\n  ```", f"```json {EDITS} ```", f"Here are the edits:\n\n{EDITS}\n\nGood luck!",
        f"```json\r\n{EDITS}\r\n```\r\n", f"<think>maybe {DRAFT}</think>{EDITS}",
        f"<thinking>\n```json\n{DRAFT}\n```\n</thinking>\n```json\n{EDITS}\n```", f"<THINK>{DRAFT}</THINK>\n{EDITS}",
        f"Draft:\n```json\n{DRAFT}\n```\nFinal:\n```json\n{EDITS}\n```", f"```json\n{EDITS}",
        f"```json\n{EDITS}\n```\nas in\n```cpp\nint main();\n```",
        f"For {{m, n, k}} large:\n{EDITS}", f"```cpp\nvoid f() {{}}\n```\n{EDITS}",
        f'```json\n{EDITS}\n```\nwhere a key is like\n```json\n{{"key": "a"}}\n```',
        f'{{"edits": [{INSERT[:-1]}, "author": "person", "round": 9}}]}}', f"\ufeff{EDITS}",
    ],
    ids=[
        "bare", "labelled fence", "plain fence", "tildes", "four ticks", "indented", "one line", "prose around",
        "CRLF", "think", "fenced draft in thinking", "capital THINK", "draft and final", "fence left open",
        "code after it", "braces in the prose", "code before it", "an example after it", "foreign fields", "BOM",
    ],
)  # fmt: skip
def test_edits_are_found_in(reply: str) -> None:
    parsed = parse_edits(reply)
    assert parsed.errors == ()
    assert parsed.edits == (Insert(parent="n0", title="a", priority=0.5),)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("", "the reply is empty"),
        (f"<think>{EDITS}", "the reply is empty"),
        ("I would fuse the heads.", "no JSON object"),
        (EDITS[:-9], "the JSON cannot be read"),
        (f"```json\n{EDITS[:-9]}", "the JSON cannot be read"),
        ("{edits: []}", "the JSON cannot be read"),
        ('{"edits": null}', 'no list "edits"'),
        (f"[{INSERT}]", 'no list "edits"'),
        ('{"a":' * 100_000, "the JSON cannot be read"),
        ('{"edits": [{"kind": "insert", "priority": 1' + "0" * 5000 + "}]}", "the JSON cannot be read"),
    ],
)
def test_a_reply_without_edits_says_why(reply: str, error: str) -> None:
    parsed = parse_edits(reply)
    assert parsed.edits == ()
    assert [error in found for found in parsed.errors] == [True]


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        ("7", "edits[0]: "),
        ('{"kind": "move", "node": "n1"}', "edits[0]: "),
        ('{"kind": "close", "node": "n1"}', "edits[0]: "),
        ('{"kind": "prune"}', "edits[0]: prune.node: Field required"),
        ('{"kind": "update", "node": "n1", "priority": "high"}', "edits[0]: update.priority: "),
        ('{"kind": "update", "node": "n1", "V": 0.5}', "edits[0]: update.V: "),
        ('{"kind": "insert", "parent": "n0", "title": "half a \\ud83d pair", "priority": 1}', "edits[0]: "),
    ],
)
def test_a_bad_edit_is_named_and_the_others_are_kept(edit: str, error: str) -> None:
    parsed = parse_edits(f'{{"edits": [{edit}, {INSERT}]}}')
    assert [found.startswith(error) for found in parsed.errors] == [True]
    assert parsed.edits == (Insert(parent="n0", title="a", priority=0.5),)


def test_a_model_cannot_speak_as_a_person() -> None:
    parsed = parse_edits('{"edits": [{"kind": "update", "node": "n1", "revive": true, "author": "person"}]}')
    assert parsed.edits == (Update(node="n1"),)


CODE = 'extern "C" void my_kernel(const float *x) {}\n'


PIECES = st.sampled_from(
    ["```", "~~~", "````", "json", "cpp", "\n", "\r\n", " ", "<think>", "</think>", '{"edits": [', "]}", "{", "}", "[",
     "]", ",", '"', INSERT, CODE, '{"kind": "update", "node": "n1", "priority": NaN}', "my_kernel(", "1e999", "null"]
)  # fmt: skip
REPLIES = st.lists(PIECES | st.text(max_size=5), max_size=20).map("".join) | st.text()


@QUIET
@given(REPLIES)
def test_no_reply_breaks_a_parser(reply: str) -> None:
    parsed = parse_edits(reply)
    assert parsed.errors or parsed.edits or "edits" in reply
    assert all(error for error in parsed.errors)
    program = parse_program(reply, TASK, "cpp")
    assert program.source if isinstance(program, Program) else program.reason
