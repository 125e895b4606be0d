"""A GPU Mode problem becomes a task folder, or is refused with the file and the key."""

from __future__ import annotations

import copy
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from gpumode_problem import PAIR, REFERENCE, STRING, TASK, write_problem
from hypothesis import given
from hypothesis import strategies as st

from tasks.errors import TaskError
from tasks.problem import _import
from tasks.sources import SOURCES
from tasks.sources.folders import toml
from tasks.sources.gpumode import label, materialise, varying
from tasks.sources.popcorn import case_file, read_problem


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def changed(**keys: Any) -> dict[str, Any]:
    """The task with some keys replaced; None removes one."""
    merged = {**copy.deepcopy(TASK), **keys}
    return {key: value for key, value in merged.items() if value is not None}


FAULTS: dict[str, tuple[dict[str, Any] | str, str]] = {
    "no mapping": ("- a\n- b\n", "task: must be a mapping"),
    "no YAML": ("files: [\n", "not valid YAML"),
    "unknown key": (changed(surprise=1), "surprise: Extra inputs"),
    "unknown structure": (changed(files={"submission.py": "@SUBMISSION@"}), "files: "),
    "no files": (changed(files=None), "files: Field required"),
    "missing file": (
        changed(files=[*TASK["files"], {"name": "more.py", "source": "../more.py"}]),
        "files.5.source: ../more.py cannot be read",
    ),
    "missing template": (changed(templates={"Python": "gone.py"}), "templates.Python: gone.py cannot be read"),
    "no submission": (changed(files=TASK["files"][1:]), "files: exactly one must have the source @SUBMISSION@"),
    "outside name": (changed(files=[{"name": "../x.py", "source": "task.py"}]), "files.0.name: "),
    "harness not there": (changed(config={"main": "run.py"}), "config.main: 'run.py' is not among the files"),
    "case without a value": (
        changed(tests=[{"rows": 1, "seed": 2}, {"rows": None}]),
        "tests.1.rows: a test case needs a value here",
    ),
    "value of a wrong type": (changed(benchmarks=[{"rows": {"a": 1}}]), "benchmarks.0.rows: "),
    "list of a wrong type": (changed(benchmarks=[{"rows": ["a"]}]), "benchmarks.0.rows: "),
    "infinite value": (changed(benchmarks=[{"rows": float("inf")}]), "benchmarks.0.rows: must be finite"),
    "case without a name": (changed(tests=[{"a b": 1}]), "tests.0.a b"),
    "no cases": (changed(benchmarks=[]), "benchmarks: "),
    "limit of a wrong type": (changed(test_timeout="3 minutes"), "test_timeout: "),
    "unknown ranking": (changed(ranking_by="best"), "ranking_by: "),
    "several GPUs": (changed(multi_gpu=True), "multi_gpu: problems for several GPUs are not supported"),
    "CUDA harness": (changed(lang="cu"), "lang: problems whose harness is written in CUDA are not supported"),
    "now a list, now a number": (changed(tests=[{**TASK["tests"][0], "widths": 3}]), "tests.0.widths: must be a list"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_malformed_problem_is_refused_with_file_and_key(fault: str, tmp_path: Path) -> None:
    task, said = FAULTS[fault]
    folder = write_problem(tmp_path, task)
    with pytest.raises(TaskError) as error:
        materialise(str(folder))
    assert f"{folder / 'task.yml'}: {said}" in str(error.value)


def test_a_problem_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"nothing: cannot be read \(No such file"):
        materialise(str(tmp_path / "nothing"))


def test_a_problem_with_another_entry_point_is_refused(tmp_path: Path) -> None:
    folder = write_problem(tmp_path, reference="def generate_input(): ...\ndef forward(data): ...\n")
    with pytest.raises(TaskError, match=r"reference.py: ref_kernel: not defined"):
        materialise(str(folder))


def test_the_task_folder_says_what_upstream_says(tmp_path: Path) -> None:
    folder = SOURCES["gpumode"](str(write_problem(tmp_path)))
    task = tomllib.loads((folder / "task.toml").read_text())
    assert (task["name"], task["call"], task["entry_point"]) == ("toy-rows_py", "data", "custom_kernel")
    assert task["specification"].startswith("Scale the rows of x")
    assert [load["name"] for load in task["workloads"]] == [
        "rows=8 masked=no widths=[16..32]x2", "rows=8 masked=yes widths=[16..32]x2"
    ]  # fmt: skip
    assert task["workloads"][0]["args"] == {"rows": 8, "masked": False, "widths": "16, 32"}
    assert [load["args"]["masked"] for load in task["checked"]] == [True, False]
    assert "device" not in task["workloads"][0]
    assert sorted(task["files"]) == [f"upstream/{name}.py" for name in ("eval", "reference", "task", "utils")]
    assert all((folder / name).is_file() for name in task["files"])


def test_a_problem_that_makes_its_inputs_on_a_gpu_is_for_a_gpu_only(tmp_path: Path) -> None:
    folder = materialise(str(write_problem(tmp_path, reference=REFERENCE.replace("zeros(rows", "zeros('cuda'"))))
    task = tomllib.loads((folder / "task.toml").read_text())
    assert {load["device"] for load in task["workloads"] + task["checked"]} == {"cuda"}


def test_the_folder_is_named_by_its_content_and_repaired(tmp_path: Path) -> None:
    problem = write_problem(tmp_path)
    folder = materialise(str(problem))
    (folder / "task.toml").write_text("changed")
    assert materialise(str(problem)) == folder
    assert "custom_kernel" in (folder / "task.toml").read_text()
    write_problem(tmp_path, utils=STRING)
    assert materialise(str(problem)) != folder


def inputs(module: Any, seed: int, **args: Any) -> Any:
    return module.make_inputs(torch.Generator().manual_seed(seed), **args)


ARGS = {"rows": 6, "masked": True, "widths": "3, 4"}


@pytest.mark.parametrize("utils", [PAIR, STRING], ids=["pair", "string"])
def test_the_functions_of_the_task_are_upstreams(utils: str, tmp_path: Path) -> None:
    before = (list(sys.path), set(sys.modules))
    module = _import(materialise(str(write_problem(tmp_path, utils=utils))) / "reference.py")
    assert sys.path == before[0]
    assert not {"reference", "task", "utils"} & (set(sys.modules) - before[1])
    x, mask, out = data = inputs(module, 1, **ARGS)
    assert x.shape == (6, 7)
    assert int(mask.sum()) == 5
    assert not out.any()
    expected = module.reference(data).clone()
    assert torch.equal(expected, x * 3 * mask)
    assert module.check(data, expected) == ""
    assert "elements differ" in module.check(data, x * 3)
    assert "could not compare the output: TypeError" in module.check(data, None)
    assert module.ref_kernel(data) is out  # the tensor for the answer is upstream's, within the data


def test_inputs_follow_from_the_generator(tmp_path: Path) -> None:
    module = _import(materialise(str(write_problem(tmp_path))) / "reference.py")
    first, again, other = (inputs(module, seed, **ARGS) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))  # the global generators are seeded too
    assert not torch.equal(first[0], other[0])


def test_booleans_stay_booleans_but_for_upstreams_case_file(tmp_path: Path) -> None:
    problem = read_problem(write_problem(tmp_path))
    module = _import(materialise(str(problem.file.parent)) / "reference.py")
    assert bool(inputs(module, 1, **{**ARGS, "masked": False})[1].all())
    assert case_file(problem.manifest.tests).splitlines()[1] == "rows: 2; masked: False; widths: [3, 4]; seed: 12"


def test_a_named_tuple_becomes_a_plain_one(tmp_path: Path) -> None:
    pairs = REFERENCE.replace("    return out\n", "    return torch.sort(out)\n")
    module = _import(materialise(str(write_problem(tmp_path, reference=pairs))) / "reference.py")
    assert [type(f(inputs(module, 1, **ARGS))) for f in (module.reference, module.ref_kernel)] == [tuple, tuple]


def test_two_problems_do_not_share_upstreams_modules(tmp_path: Path) -> None:
    first = _import(materialise(str(write_problem(tmp_path / "a"))) / "reference.py")
    changed_reference = REFERENCE.replace("Scale(3.0)", "Scale(5.0)")
    second = _import(materialise(str(write_problem(tmp_path / "b", reference=changed_reference))) / "reference.py")
    data = inputs(first, 1, **ARGS)
    assert torch.allclose(first.reference(data) * 5, second.reference(data) * 3)


def test_the_licence_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_problem(tmp_path / "kernels"))
    materialise(folder)
    materialise(folder)
    assert capsys.readouterr().err.count("kernels: Toy Licence (") == 1


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), min_size=1), min_size=1, max_size=9))
def test_no_two_cases_have_one_name(cases: list[dict[str, Any]]) -> None:
    used: set[str] = set()
    names = [label(case, varying(cases), "", used) for case in cases]
    assert len(set(names)) == len(names)


PLAIN = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False),
                  st.text(st.characters(exclude_categories=["Cs"])))  # fmt: skip
TABLE = st.dictionaries(st.text("ab-_ é", min_size=1, max_size=4), st.one_of(PLAIN, st.lists(PLAIN)), max_size=4)


@given(TABLE, st.lists(TABLE, min_size=1, max_size=3), TABLE)
def test_toml_is_read_back_as_it_was(plain: dict[str, Any], array: list[dict[str, Any]], table: dict[str, Any]) -> None:
    data = {**plain, "array": array, "table": table, "inline": [table]}
    assert tomllib.loads(toml(data)) == data
