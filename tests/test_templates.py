"""Prompts of the user's own in place of the shipped ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import compiled, edits, insert, program, scripted, start
from small_runs import ksearch

from prompts.rendering import SHIPPED, PromptError, Templates


def own(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name.replace('__', '.')}.md.j2").write_text(text)
    return folder


def test_without_a_folder_all_is_as_shipped() -> None:
    assert Templates().render("repair.md.j2", {"errors": ["e"]}) == SHIPPED.render("repair.md.j2", {"errors": ["e"]})


def test_a_file_replaces_one_template_and_leaves_the_others(tmp_path: Path) -> None:
    templates = Templates(own(tmp_path, repair="Again: {{ errors | join(', ') }}"))
    prompt = templates.render("repair.md.j2", {"errors": ["a", "b"]})
    assert prompt.text == "Again: a, b"
    assert prompt.template.startswith("repair.md.j2@")
    assert prompt.template != SHIPPED.render("repair.md.j2", {"errors": ["a"]}).template
    with pytest.raises(PromptError, match=r"coder\.md\.j2"):
        templates.render("coder.md.j2", {})


def test_a_language_may_have_a_template_of_its_own(tmp_path: Path) -> None:
    templates = Templates(own(tmp_path, coder="any", coder__cuda="for CUDA"))
    assert templates.render("coder.md.j2", {}, "cuda").text == "for CUDA"
    assert templates.render("coder.md.j2", {}, "cuda").template.startswith("coder.cuda.md.j2@")
    assert templates.render("coder.md.j2", {}, "cpp").text == "any"


def test_a_shipped_template_can_be_included(tmp_path: Path) -> None:
    templates = Templates(own(tmp_path, repair='{% include "shipped/repair.md.j2" %}Be brief.', _more="x"))
    prompt = templates.render("repair.md.j2", {"errors": ["e"]})
    assert prompt.text == SHIPPED.render("repair.md.j2", {"errors": ["e"]}).text + "Be brief."


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("codr", "x", "no prompt has this name"),
        ("coder__fortran", "x", "no prompt has this name"),
        ("coder", "fine\n{% if %}", r"coder\.md\.j2:2: "),
    ],
)
def test_a_file_that_cannot_be_a_template_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(PromptError, match=said):
        Templates(own(tmp_path, **{name: text}))


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="no such folder"):
        Templates(tmp_path / "none")
    said = ksearch("run", "rmsnorm_swiglu", "--prompts", "none", "--budget", 1, cwd=tmp_path)
    assert (said.returncode, "no such folder of prompts" in said.stderr) == (2, True), said.stderr


def test_a_variable_that_is_not_given_is_named(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="hardwear"):
        Templates(own(tmp_path, repair="{{ hardwear }}")).render("repair.md.j2", {"errors": []})


def test_a_run_asks_with_them(tmp_path: Path) -> None:
    services, planner, writer = scripted(tmp_path / "k.db", [edits(insert("one", 0.5))], [program("1.5")])
    services.templates = Templates(own(tmp_path, coder="Write {{ intent.title }}.", world_model="Plan."))
    start(compiled(services), budget=1, max_calls=2)
    assert planner.prompt(0) == "Plan."
    assert writer.prompt(0) == "Write one."
