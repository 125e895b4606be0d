"""The playbook model: it reads what any model reads, and answers in the same forms."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from fakes import SCAFFOLD
from langchain_core.messages import AIMessage, HumanMessage

from nodes.models.named import ModelError, model_named
from nodes.models.playbook import HEADER, PlaybookModel
from prompts import coder, world_model
from prompts.coder import Assignment
from prompts.programs import Unusable, parse_program
from prompts.world_model import Situation, parse_edits
from state.edits import Attempt, Close, Edit, Insert, Prune, Update, apply
from state.program import Program
from state.search import Outcome
from state.tree import Intent, SearchTree, new_tree
from tasks.playbook import Playbook, load_playbook
from tasks.task import LIBRARY, Task, TaskError, load_task

FOLDERS = [SCAFFOLD / "playbook" / "cpp", *(p.parent for p in sorted(LIBRARY.glob("*/playbook/*/intents.toml")))]
PLAIN = FOLDERS[0]
every_playbook = pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f"{f.parent.parent.name}-{f.name}")


def ask(model: PlaybookModel, prompt: str) -> str:
    """The reply, which is the same a second time and after an unusable first one."""
    reply = model.invoke([HumanMessage(prompt)]).text
    assert model.invoke([HumanMessage(prompt), AIMessage("?"), HumanMessage("Send it again.")]).text == reply
    return reply


def edits(model: PlaybookModel, task: Task, tree: SearchTree, closed: str | None = None) -> tuple[Edit, ...]:
    outcome = closed and Outcome(node=closed, program=None, score=None, parent_score=None, verdicts=())
    situation = Situation(
        task=task, hardware="h", baseline="b", tree=tree, round=0, evaluations=0, budget=9, best=None,
        outcome=outcome or None, detail="", rejected=(), words=(),
    )  # fmt: skip
    parsed = parse_edits(ask(model, world_model.ask(situation).text))
    assert parsed.errors == ()
    return parsed.edits


def program(
    model: PlaybookModel, task: Task, intent: Intent, attempt: int = 1, parent: Program | None = None
) -> Program | Unusable:
    assignment = Assignment(
        task=task, language=task.languages[0], hardware="h", intent=intent, attempt=attempt, parent=parent,
        parent_score=parent and 100.0, best=None, best_verdict=None, last=None, last_program=None,
    )  # fmt: skip
    return parse_program(ask(model, coder.ask(assignment).text), task, task.languages[0])


def header(found: Program | Unusable) -> dict[str, object]:
    assert isinstance(found, Program), found
    mark, line = found.source.splitlines()[0].split(" ", 1)
    assert mark == ("//" if found.language in ("cpp", "cuda") else "#")
    assert line.startswith(HEADER)
    parsed: dict[str, object] = json.loads(line[len(HEADER) :])
    return parsed


def pursued(tree: SearchTree, node: str, score: float | None) -> SearchTree:
    attempt = Attempt(node=node, program_id="p", verdict="passed", score=score or 0.0, best=score is not None)
    applied = apply(tree, [attempt, Close(node=node)])
    assert applied.rejected == ()
    return applied.tree


def playing(folder: Path) -> tuple[Task, Playbook, PlaybookModel]:
    """The task as the language of a playbook's folder sees it, the playbook, and its model."""
    book = load_playbook(folder)
    return load_task(folder.parent.parent).narrowed(folder.name), book, PlaybookModel(playbook=book)


@every_playbook
def test_every_intent_can_be_reached_and_every_variant_renders(folder: Path) -> None:
    task, book, model = playing(folder)
    tree, programs = new_tree(task.title), dict[str, Program]()
    pruned = {key for rule in book.rules for key in rule.prune}
    applied = apply(tree, list(edits(model, task, tree)))
    score = 0.0
    while applied.tree.frontier():
        assert [r.reason for r in applied.rejected] == [], "no intent of a playbook is refused"
        node = applied.tree.frontier()[0]
        intent = book.by_title(node.intent.title)
        assert intent is not None
        parent = programs.get(intent.requires or "")
        for attempt in range(1, len(intent.variants) + 1):
            found = program(model, task, node.intent, attempt, parent)
            told = header(found)
            assert told["intent"] == intent.key
            expected = intent.params | intent.variants[attempt - 1]
            assert expected.items() <= told["params"].items()  # type: ignore[attr-defined]
            if attempt == 1 and isinstance(found, Program):
                programs[intent.key] = found
        score += 10.0
        tree = pursued(applied.tree, node.id, score)
        applied = apply(tree, list(edits(model, task, tree, node.id)))
    assert {intent.key for intent in book.intents} - pruned <= set(programs)


@every_playbook
def test_variants_of_an_intent_are_different_programs(folder: Path) -> None:
    task, book, model = playing(folder)
    for intent in book.intents:
        found = [program(model, task, Intent(title=intent.title), n + 1) for n in range(len(intent.variants))]
        assert len({header(f) and f.source for f in found if isinstance(f, Program)}) == len(found), intent.key
        again = program(model, task, Intent(title=intent.title), len(found) + 1)
        assert again == found[-1], "after the last variant it repeats itself"


@every_playbook
def test_shuffling_deals_the_same_priorities_anew(folder: Path) -> None:
    book = load_playbook(folder)
    shuffled = [book.shuffled(seed) for seed in range(20)]
    for other in shuffled:
        assert sorted(i.priority for i in other.intents) == sorted(i.priority for i in book.intents)
        assert [i.model_copy(update={"priority": 0}) for i in other.intents] == [
            i.model_copy(update={"priority": 0}) for i in book.intents
        ]
    assert book.shuffled(3) == book.shuffled(3)
    assert len({tuple(i.priority for i in other.intents) for other in shuffled}) > 1


def test_the_first_turn_inserts_what_needs_nothing() -> None:
    task, book, model = playing(PLAIN)
    tree = new_tree(task.title)
    (only,) = edits(model, task, tree)
    assert only == Insert(
        parent="n0", key="lanes", title="Independent partial sums", description=book.intents[0].description,
        priority=0.7, predicted_score=150.0, confidence=0.6, difficulty=2,
    )  # fmt: skip
    assert edits(model, task, apply(tree, [only]).tree) == (), "it is there already"


@pytest.mark.parametrize(("score", "inserted"), [(90.0, ["parallel"]), (None, [])])
def test_a_child_follows_once_its_prerequisite_passed_even_slower(score: float | None, inserted: list[str]) -> None:
    task, _, model = playing(PLAIN)
    tree = new_tree(task.title)
    tree = pursued(apply(tree, list(edits(model, task, tree))).tree, "n1", score)
    found = edits(model, task, tree, "n1")
    assert [(e.key, e.parent) for e in found if isinstance(e, Insert)] == [(key, "n1") for key in inserted]


def test_a_child_inherits_the_parameters_of_the_program_it_starts_from() -> None:
    task, _, model = playing(PLAIN)
    second = program(model, task, Intent(title="Independent partial sums"), attempt=2)
    assert header(second) == {"intent": "lanes", "params": {"lanes": 16, "parallel": False}}
    assert isinstance(second, Program)
    child = program(model, task, Intent(title="Rows over the cores"), parent=second)
    assert header(child) == {"intent": "parallel", "params": {"lanes": 16, "parallel": True}}
    alone = program(model, task, Intent(title="Rows over the cores"))
    assert header(alone)["params"] == {"lanes": 1, "parallel": True}


def test_an_intent_of_a_person_gets_an_unusable_reply() -> None:
    task, _, model = playing(PLAIN)
    found = program(model, task, Intent(title="Use the tensor cores", description="# The tree of life"))
    assert isinstance(found, Unusable) and "no fenced code block" in found.reason


RULES = """
[[rules]]
after = "lanes"
when = "{when}"
set = {{ rival = 0.9, parallel = 0.2 }}
prune = ["straw"]
reason = "lanes were {when}"
"""
INTENT = (
    '[[intents]]\nkey = "{0}"\ntitle = "The {0} idea"\ndescription = ""\npriority = 0.5\ntemplate = "kernel.cpp.j2"\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the scaffold's playbook."""
    return Path(shutil.copytree(PLAIN, tmp_path / "playbook"))


@pytest.mark.parametrize(
    ("when", "scores", "fires"),
    [
        ("always", [None], True), ("always", [80.0], True),
        ("failed", [None], True), ("failed", [80.0], False),
        ("improved", [80.0], True), ("improved", [None], False),
        ("not_improved", [None], False), ("not_improved", [80.0], False),
    ],
)  # fmt: skip
def test_a_rule_updates_and_prunes_when_it_applies(
    folder: Path, when: str, scores: list[float | None], fires: bool
) -> None:
    with (folder / "intents.toml").open("a") as file:
        file.write(INTENT.format("rival") + INTENT.format("straw") + RULES.format(when=when))
    task, model = load_task(SCAFFOLD), PlaybookModel(playbook=load_playbook(folder))
    tree = new_tree(task.title)
    tree = pursued(apply(tree, list(edits(model, task, tree))).tree, "n1", scores[0])
    found = edits(model, task, tree, "n1")
    why = f"lanes were {when}"
    reactions = [edit for edit in found if not isinstance(edit, Insert)]
    assert reactions == ([Update(node="n2", priority=0.9, evidence=why), Prune(node="n3", evidence=why)] * fires)
    inserted = [(edit.priority, edit.evidence) for edit in found if isinstance(edit, Insert)]
    assert inserted == ([(0.2, why) if fires else (0.8, "")] if scores[0] else [])


def test_a_score_counts_as_improved_against_the_nearest_ancestor_with_one(folder: Path) -> None:
    rule = '\n[[rules]]\nafter = "parallel"\nwhen = "{0}"\nset = {{ rival = {1} }}\nreason = "{0}"\n'
    with (folder / "intents.toml").open("a") as file:
        file.write(INTENT.format("rival") + rule.format("improved", 0.9) + rule.format("not_improved", 0.1))
    task, model = load_task(SCAFFOLD), PlaybookModel(playbook=load_playbook(folder))
    start = new_tree(task.title)
    start = pursued(apply(start, list(edits(model, task, start))).tree, "n1", 100.0)
    start = apply(start, list(edits(model, task, start, "n1"))).tree
    for score, priority in ((120.0, 0.9), (90.0, 0.1)):
        found = edits(model, task, pursued(start, "n3", score), "n3")
        assert [edit.priority for edit in found if isinstance(edit, Update)] == [priority]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("priority = 0.7", "priority = 1.7", "intents.toml: intents.0.priority: "),
        ("priority = 0.7", "prior = 0.7", "intents.toml: intents.0.priority: Field required"),
        ("priority = 0.7", "priority = nan", "intents.toml: intents.0.priority: "),
        ("difficulty = 1", "difficulty = 9", "intents.toml: intents.1.difficulty: "),
        ('key = "parallel"', 'key = "lanes"', "the key 'lanes' is used twice"),
        ('title = "Rows over the cores"', 'title = "Independent partial sums"', "is used twice"),
        ('requires = "lanes"', 'requires = "parallel"', "parallel.requires: no intent 'parallel' comes before it"),
        ('template = "kernel.cpp.j2"', 'template = "gone.j2"', "lanes.template: there is no file 'gone.j2'"),
        ("[defaults]", '[[rules]]\nafter = "nothing"\nreason = "r"\n[defaults]', "names 'nothing', which is no intent"),
        ("[defaults]", "[defaults", "intents.toml: not valid TOML"),
    ],
)
def test_a_bad_playbook_is_named_with_its_file_and_key(folder: Path, old: str, new: str, problem: str) -> None:
    file = folder / "intents.toml"
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(TaskError) as error:
        load_playbook(folder)
    assert problem in str(error.value)
    assert str(file) in str(error.value)


def test_a_template_that_cannot_be_rendered_is_named(folder: Path) -> None:
    (folder / "kernel.cpp.j2").write_text("{{ nothing }}")
    book = load_playbook(folder)
    with pytest.raises(TaskError, match=r"kernel\.cpp\.j2: lanes: 'nothing' is undefined"):
        book.program(book.intents[0], {}, 1)


@pytest.mark.parametrize("name", ["playbook:", "playbook:shuffle", "playbook:shuffle=x", "gpt", "openai:", ""])
def test_an_unknown_model_lists_the_choices(name: str) -> None:
    if name == "playbook:":
        assert model_named(name, load_task(SCAFFOLD)) == model_named("playbook", load_task(SCAFFOLD))
        return
    with pytest.raises(ModelError, match="playbook"):
        model_named(name, load_task(SCAFFOLD))
