"""KernelBench problems become task folders; the problems here are small ones of our own in that layout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from state.program import Program
from state.verdict import Passed, WrongResult
from tasks.local import LocalEvaluator
from tasks.sources.kernelbench import fast_p
from tasks.task import TaskError, find_task

ROOT = Path(__file__).parent.parent
PROBLEM = '''
import torch
from torch import nn

class Model(nn.Module):
    """A layer, shifted, with something dropped when training."""

    def __init__(self, width, shift, sizes):
        super().__init__()
        self.layer = nn.Linear(width, sizes[0])
        self.drop = nn.Dropout(0.5)
        self.shift = shift

    def forward(self, x, mask):
        return self.drop(self.layer(x)).masked_fill(mask, 0.0) + self.shift

rows, width = 48, 64

def get_inputs():
    return [torch.rand(rows, width), torch.randint(0, 2, (rows, 1)).bool()]

def get_init_inputs():
    return [width, 0.25, (32,)]
'''
NEW = PROBLEM.replace("class Model", "class ModelNew")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two problems; tasks that are made from it go to a folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KERNELBENCH", str(tmp_path / "bench"))
    for level, name in ((1, "7_Shifted_layer_"), (1, "17_Other"), (2, "7_Elsewhere")):
        folder = tmp_path / "bench" / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text(PROBLEM)
    (tmp_path / "bench" / "LICENSE").write_text("\nSome Licence\n\nrest\n")
    return tmp_path / "bench"


def test_a_problem_becomes_a_task_outside_of_the_checkout(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = sorted(checkout.rglob("*"))
    task = find_task("kernelbench:1/7")
    assert sorted(checkout.rglob("*")) == before
    assert (task.name, task.title) == ("kernelbench-1-7", "KernelBench 1/7: Shifted layer")
    assert (task.call, task.entry_point, task.files) == ("module", "ModelNew", ("problem.py",))
    assert task.origin == "KernelBench 1/7 (7_Shifted_layer_.py)"
    assert task.tolerance and (task.tolerance.atol, task.tolerance.rtol) == (1e-4, 1e-4)
    assert task.folder.is_relative_to(checkout.parent / "cache" / "ksearch" / "tasks")
    assert (task.folder / "problem.py").read_text() == PROBLEM
    assert "return [width, 0.25, (32,)]" in task.specification
    assert "Some Licence" in capfd.readouterr().err
    for spelling in (f"kernelbench:{checkout}:1/7", f"kernelbench:{checkout / 'KernelBench'}:1/7"):
        assert find_task(spelling).folder == task.folder
    assert find_task("kernelbench:2/7").folder != task.folder
    file = checkout / "KernelBench" / "level1" / "7_Shifted_layer_.py"
    file.write_text(PROBLEM.replace("rows, width = 48", "rows, width = 49"))
    assert find_task("kernelbench:1/7").hash != task.hash


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("1/8", None, r"level1: 8_\*\.py: there is no problem 8"),
        ("9/7", None, r"level9: there is no such level"),
        ("1/7", PROBLEM.replace("class Model", "class Net"), r"7_Shifted_layer_\.py: Model: not defined"),
        ("1/7", PROBLEM.replace("def get_inputs", "def inputs"), r"7_Shifted_layer_\.py: get_inputs: not defined"),
        ("1/7", PROBLEM.replace("def get_init", "def got_init"), r"_layer_\.py: get_init_inputs: not defined"),
        ("1/7", "an abstract\n", r"7_Shifted_layer_\.py: not valid Python: .* \(line 1\)"),
        ("1/7", "\udcff", r"7_Shifted_layer_\.py: cannot be read"),
        ("one/7", None, r"kernelbench:one/7: is not kernelbench:LEVEL/ID"),
        ("7", None, r"is not kernelbench:LEVEL/ID"),
        ("/nowhere:1/7", None, r"/nowhere: holds no KernelBench problems"),
    ],
)
def test_what_is_wrong_with_a_problem_is_named(checkout: Path, name: str, text: str | None, words: str) -> None:
    if text is not None:
        file = checkout / "KernelBench" / "level1" / "7_Shifted_layer_.py"
        file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(TaskError, match=words):
        find_task(f"kernelbench:{name}")


def test_two_files_of_one_number_and_no_checkout_are_named(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "KernelBench" / "level1" / "7_Again.py").write_text(PROBLEM)
    with pytest.raises(TaskError, match="2 files are problem 7"):
        find_task("kernelbench:1/7")
    monkeypatch.delenv("KERNELBENCH")
    with pytest.raises(TaskError, match=r"Set KERNELBENCH=PATH, or say kernelbench:PATH:1/7"):
        find_task("kernelbench:1/7")


@pytest.fixture
def judge(checkout: Path) -> LocalEvaluator:
    task = find_task("kernelbench:1/7").narrowed("python")
    return LocalEvaluator(task.model_copy(update={"baselines": ("eager",)}), rounds=4, threads=1)


def test_a_copy_of_the_model_passes_and_other_weights_do_not(judge: LocalEvaluator) -> None:
    try:
        verdict = judge.evaluate(Program(language="python", source=NEW))
        assert isinstance(verdict, Passed), verdict
        assert verdict.receipt and verdict.receipt.inputs.startswith("get_inputs of the problem, drawn anew")
        other = NEW.replace("nn.Linear(width, sizes[0])", "nn.Linear(width, sizes[0]).double().float()\n"
                            "        self.layer.weight.data.mul_(1.01)")  # fmt: skip
        verdict = judge.evaluate(Program(language="python", source=other))
        assert isinstance(verdict, WrongResult) and verdict.reason == "mismatch"
    finally:
        judge.close()


def test_eval_tells_fast_p(checkout: Path, tmp_path: Path) -> None:
    files = [tmp_path / "shifted.py", tmp_path / "raising.py"]
    files[0].write_text(NEW.replace("+ self.shift", "- self.shift"))
    files[1].write_text(NEW.replace("+ self.shift", "+ self.shifted"))
    command = [sys.executable, "-m", "graph.cli", "eval", "kernelbench:1/7", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "fast_0 0.00, fast_1 0.00, fast_2 0.00 over 2 program(s)" in " ".join((done.stdout + done.stderr).split())


def test_fast_p_counts_what_is_right_and_faster() -> None:
    speedups = [None, 0.5, 1.0, 1.5, 3.0]
    assert [fast_p(speedups, p) for p in (0.0, 1.0, 2.0, 3.0)] == [0.8, 0.4, 0.2, 0.0]
    assert fast_p([], 1.0) == 0.0
