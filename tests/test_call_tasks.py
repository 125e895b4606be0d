"""Tasks whose entry point is called as upstream projects call theirs, and what programs can do about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_task import TOML, write_task

from prompts import coder
from prompts.coder import Assignment
from prompts.programs import Unusable, parse_program
from state.program import Program
from state.tree import Intent
from state.verdict import Crashed, Passed, Rejected, Verdict, WrongResult
from tasks.called import Called, open_problem
from tasks.device import Cpu
from tasks.local import LocalEvaluator, plain
from tasks.problem import ProblemError
from tasks.race import race
from tasks.structure import Unfit, dense_strides, leaves, put_together, taken_apart
from tasks.task import Task, TaskError
from tasks.timing import overdue

MANIFEST = """
name = "scaled"
title = "Scale columns"
specification = "y = x * weight * scale, and its row sums"
entry_point = "scaled"
call = "data"
languages = ["python"]
baselines = ["eager"]

[[workloads]]
name = "wide"
args = { rows = 24, columns = 1000, scale = 0.5, turned = true, name = "w" }

[[workloads]]
name = "tall"
args = { rows = 300, columns = 40, scale = 2.0, turned = false, name = "t" }

[tolerance]
atol = 1e-4
rtol = 1e-4

[limits]
call_s = 3.0
memory_mb = 400
"""
REFERENCE = """
import torch

def make_inputs(generator, rows, columns, scale, turned, name):
    x = torch.randn(columns, rows, generator=generator).T if turned else torch.randn(rows, columns, generator=generator)
    weights = {"weight": torch.rand(columns, generator=generator), "norm.bias": torch.zeros(3)}
    config = {"scale": scale, "turned": turned, "name": name, "nothing": None, "dtype": torch.float32, "pair": (1, 2)}
    return x, weights, [config], torch.empty(rows, columns)

def reference(data):
    x, weights, (config,), y = data
    torch.mul(x * weights["weight"], config["scale"], out=y)
    return y, {"sums": y.sum(1)}

eager = reference
"""
RIGHT = """
    x, weights, (config,), y = data
    torch.mul(x * weights["weight"], config["scale"], out=y)
    return y, {"sums": y.sum(1)}
"""
ARGUMENTS = """
import torch

def make_inputs(generator, rows, columns):
    return [torch.randn(rows, columns, generator=generator), 1.5]

def reference(x, factor):
    return x * factor

def eager(x, factor):
    return x * factor
"""
CHECK = """
def check(data, output):
    x, factor = data
    output = output - x * factor
    return "" if float(output.abs().max()) < 0.5 else f"off by {float(output.abs().max()):.3f}"
"""
MODULE = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width, names):
        super().__init__()
        self.linear = torch.nn.Linear(width, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        assert names == {"mode": "plain"}

    def forward(self, x):
        return self.norm(self.linear(x))

def make_init():
    return [32, {"mode": "plain"}]

def make_inputs(generator, rows):
    return (torch.randn(rows, 32, generator=generator),)

reference = Model

def in_one_go(*init):
    return torch.nn.Sequential(Model(*init))
"""
SMALL = [("wide", "args = { rows = 24, columns = 100 }"), ("tall", "args = { rows = 30, columns = 40 }")]


def manifest(call: str, loads: list[tuple[str, str]], **values: str) -> str:
    text = MANIFEST.replace('call = "data"', f'call = "{call}"')
    head, tail = text[: text.index("[[workloads]]")], text[text.index("[tolerance]") :]
    for key, value in values.items():
        head = re.sub(rf"^{key} = .*$", f"{key} = {value}", head, flags=re.MULTILINE)
    return head + "".join(f'[[workloads]]\nname = "{name}"\n{args}\n\n' for name, args in loads) + tail


def scaled(body: str, extra: str = "") -> Program:
    return Program(language="python", source=f"import torch\n{extra}\ndef scaled(data):\n{body}\n")


Maker = Callable[..., LocalEvaluator]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    made: list[LocalEvaluator] = []

    def one(toml: str, reference: str) -> LocalEvaluator:
        task = write_task(tmp_path_factory.mktemp("task"), reference, toml)
        made.append(LocalEvaluator(task, rounds=4, threads=1))
        return made[-1]

    yield one
    for evaluator in made:
        evaluator.close()


@pytest.fixture(scope="module")
def judge(make: Maker) -> LocalEvaluator:
    return make(MANIFEST, REFERENCE)


def wrong(verdict: Verdict) -> WrongResult:
    assert isinstance(verdict, WrongResult), verdict
    return verdict


def test_a_right_program_passes_on_nested_data(judge: LocalEvaluator) -> None:
    verdict = judge.evaluate(scaled(RIGHT))
    assert isinstance(verdict, Passed), verdict
    assert verdict.receipt and verdict.receipt.rounds >= 3


def test_structure_plain_values_and_layout_arrive_as_they_were_made(judge: LocalEvaluator) -> None:
    extra = """
def seen(data):
    x, weights, configs, y = data
    assert type(data) is tuple and type(configs) is list and list(weights) == ["weight", "norm.bias"]
    config = configs[0]
    wide = config["name"] == "w"
    assert config == {"scale": 0.5 if wide else 2.0, "turned": wide, "name": config["name"], "nothing": None,
                      "dtype": torch.float32, "pair": (1, 2)}
    assert type(config["turned"]) is bool
    assert (x.stride(), tuple(x.shape)) == (((1, 24), (24, 1000)) if wide else ((40, 1), (300, 40)))
"""
    verdict = judge.evaluate(scaled("    seen(data)\n" + RIGHT, extra))
    assert isinstance(verdict, Passed), verdict


@pytest.mark.parametrize(
    ("body", "reason", "words"),
    [
        (RIGHT.replace('config["scale"]', "0.25"), "mismatch", r"'output.0' \(24x1000\) .*0.5 times what is expected"),
        (RIGHT.replace("y.sum(1)", "y.sum(0)"), "shape", r"output.1.sums has shape \[1000\] instead of \[24\]"),
        (RIGHT.replace("return", "y = y.double()\n    return"), "shape", r"output.0 has dtype torch.float64 instead"),
        (RIGHT.replace('{"sums": y.sum(1)}', "y.sum(1)"), "shape", r"output.1 must be a dict with the keys \['sums'\]"),
        (RIGHT.replace("y, {", "{"), "shape", r"output must be a tuple of 2, and is a dict of 1"),
        (RIGHT.replace("return y", "return None"), "shape", r"output.0 is None: the entry point must return"),
        ("    pass", "shape", r"output must be a tuple of 2, and is None"),
        (RIGHT.replace("y.sum(1)", "[y.sum(1)]"), "shape", "output.1.sums is a list, and must be exactly a torch"),
        (RIGHT.replace("y.sum(1)", "y.sum(1).to_sparse()"), "shape", "layout torch.sparse_coo"),
        (RIGHT.replace("y.sum(1)", "y.sum(1).to('meta')"), "shape", "is on meta instead of cpu"),
    ],
)
def test_what_is_returned_is_looked_at(judge: LocalEvaluator, body: str, reason: str, words: str) -> None:
    verdict = judge.evaluate(scaled(body))
    assert wrong(verdict).reason == reason
    assert re.search(words, wrong(verdict).message), verdict
    assert "'wide'" in wrong(verdict).message


def test_a_tensor_that_computes_when_it_is_read_is_refused(judge: LocalEvaluator) -> None:
    lazy = """
class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))
"""
    verdict = judge.evaluate(scaled(RIGHT.replace("return y", "return y.as_subclass(Lazy)"), lazy))
    assert wrong(verdict).reason == "shape"
    assert "output.0 is a Lazy" in wrong(verdict).message


LATE = """
import sys, time
late = []
def hook(frame, event, argument):
    if event == "call" and late:
        sys.setprofile(None)
        late.pop()()
def later(data, y, sums):
    def work():
        time.sleep(0.1)
        made = right(data)
        y.copy_(made[0])
        sums.copy_(made[1]["sums"])
    late.append(work)
    sys.setprofile(hook)
"""


def test_work_that_is_put_off_until_outputs_are_handed_over_counts(judge: LocalEvaluator) -> None:
    body = """
    y, sums = torch.empty_like(data[3]), torch.empty(data[3].shape[0])
    later(data, y, sums)
    return y, {"sums": sums}
"""
    verdict = judge.evaluate(scaled(body, f"def right(data):{RIGHT}\n{LATE}"))
    assert isinstance(verdict, Passed | Rejected | WrongResult), verdict
    if isinstance(verdict, Passed):
        assert min(timing.latency_us for timing in verdict.timings) > 40_000


def test_modes_and_patches_of_torch_have_no_part_in_handing_over(judge: LocalEvaluator) -> None:
    mode = f"""
from torch.overrides import TorchFunctionMode
def right(data):{RIGHT}
class Late(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.copy_:
            args[1].fill_(7.0)
        return function(*args, **(kwargs or {{}}))
mode = Late()
copy = torch.Tensor.copy_
def spoil(target, source):
    return copy(target, source + 1)
"""
    entered = "    if not mode.__dict__.get('on'):\n        mode.on = True\n        mode.__enter__()\n"
    entered += "        torch.Tensor.copy_ = spoil\n"
    verdict = judge.evaluate(scaled(f"    made = right(data)\n{entered}    return made", mode))
    assert isinstance(verdict, Passed), verdict


def test_only_inputs_that_the_reference_writes_to_may_be_written_to(judge: LocalEvaluator) -> None:
    verdict = judge.evaluate(scaled(RIGHT.replace("    return", "    x.mul_(1.0001)\n    return")))
    assert isinstance(verdict, Rejected), verdict
    assert (verdict.reason, "'data.0'" in verdict.message) == ("mutated_input", True)
    verdict = judge.evaluate(scaled(RIGHT.replace("    return", "    y = y.clone()\n    data[3].zero_()\n    return")))
    assert isinstance(verdict, Passed), verdict


def test_an_exception_shows_its_line(judge: LocalEvaluator) -> None:
    verdict = judge.evaluate(scaled("    raise ValueError(f'odd: {len(data)}')"))
    assert isinstance(verdict, Crashed)
    assert "ValueError on workload 'wide': odd: 4\n  line 4, in scaled" in verdict.message


def test_outputs_of_an_earlier_call_are_recognised(judge: LocalEvaluator) -> None:
    body = f"""
    if not kept:
        kept.append(right(data))
        kept.append(data[2][0]["name"])
    if data[2][0]["name"] == kept[1]:
        return kept[0]
{RIGHT}"""
    verdict = judge.evaluate(
        scaled(body, f"kept = []\ndef right(data):{RIGHT}".replace("out=y)", "out=torch.empty(0))"))
    )
    assert wrong(verdict).reason in ("mismatch", "nan")


@pytest.fixture(scope="module")
def checking(make: Maker) -> LocalEvaluator:
    toml = manifest("arguments", SMALL)
    return make(toml[: toml.index("[tolerance]")], ARGUMENTS + CHECK)


def test_arguments_are_passed_one_by_one(checking: LocalEvaluator) -> None:
    judge = checking
    entry = "import torch\ndef scaled(x, factor):\n    "
    verdict = judge.evaluate(Program(language="python", source=entry + "return x * factor"))
    assert isinstance(verdict, Passed), verdict
    verdict = judge.evaluate(Program(language="python", source=entry + "x *= factor; return x"))
    assert isinstance(verdict, Rejected) and verdict.reason == "mutated_input"
    verdict = judge.evaluate(Program(language="python", source="def scaled(data):\n    return data[0]"))
    assert isinstance(verdict, Crashed) and "TypeError" in verdict.message


def test_a_module_is_made_under_the_seed_and_in_the_mode_of_the_reference(make: Maker) -> None:
    loads = [("some", "args = { rows = 64 }")]
    judge = make(manifest("module", loads, baselines='["in_one_go"]'), MODULE)
    model = MODULE[: MODULE.index("def make_init")].replace("Model", "scaled")
    verdict = judge.evaluate(Program(language="python", source=model))
    assert isinstance(verdict, Passed), verdict
    assert verdict.receipt and len(verdict.receipt.seeds) == len(set(verdict.receipt.seeds))
    other = model.replace("        self.linear", "        torch.rand(1)\n        self.linear")
    assert wrong(judge.evaluate(Program(language="python", source=other))).reason == "mismatch"
    still = model.replace("return self.norm", "self.norm.eval()\n        return self.norm")
    assert wrong(judge.evaluate(Program(language="python", source=still))).reason == "mismatch"
    function = "def scaled(*init):\n    return 3"
    verdict = judge.evaluate(Program(language="python", source=function))
    assert isinstance(verdict, Crashed) and "while it was being loaded" in verdict.message


def test_a_check_of_the_tasks_own_stands_in_for_the_tolerance(checking: LocalEvaluator) -> None:
    for shift, kind in ((0.25, Passed), (0.75, WrongResult)):
        source = f"def scaled(x, factor):\n    return x * factor + {shift}"
        verdict = checking.evaluate(Program(language="python", source=source))
        assert isinstance(verdict, kind), verdict
    assert wrong(verdict).reason == "check"
    assert "own check on workload 'wide': off by 0.750" in wrong(verdict).message


def problem(folder: Path, reference: str, toml: str = MANIFEST) -> Called:
    found = open_problem(plain(write_task(folder, reference, toml)), Cpu())
    assert isinstance(found, Called)
    return found


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"nothing": None', '"nothing": object()', r"make_inputs: data\.2\.0\.nothing is a object: only tensors"),
        ('"nothing": None', '"nothing": generator', r"make_inputs: data\.2\.0\.nothing is a Generator"),
        ('"nothing": None', '(1,): None', r"make_inputs: data\.2\.0 has a key that is a tuple"),
        ('"nothing": None', '"nothing": float(torch.rand(1, generator=generator))', r"make_inputs: returns another"),
        ("torch.randn(columns, rows, generator=generator).T", "torch.randn(columns, rows, generator=generator, "
         "device='meta').T", r"make_inputs: data\.0 must be a dense tensor on generator\.device|make_inputs: .*meta"),
        ("torch.zeros(3)", "torch.zeros(int(torch.randint(3, 9000, (), generator=generator)))",
         "norm.bias has another shape, dtype or layout"),
        ("    return y, {", "    raise RuntimeError('no such kernel')\n    return y, {",
         r"reference\.py: reference: RuntimeError: no such kernel \(line 13\)"),
        ("return y, {", "return None, {", r"reference: output\.0 is no tensor"),
        ("return y, {", "return y.to(torch.complex64), {", r"reference: output\.0 must be a dense, real tensor"),
        ("y.sum(1)}", "y.sum(1) + torch.rand(1)}", r"reference: output\.1\.sums is another one when the same inputs"),
        ("eager = reference", "eager = lambda data: data[0]", r"none can be used .* eager: .*output must be a tuple"),
        ("def make_inputs(generator, rows", "def make_inputs(generator, lines", r"make_inputs: TypeError"),
    ],
)  # fmt: skip
def test_a_fault_of_the_task_names_file_function_and_path(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in REFERENCE
    with pytest.raises(ProblemError, match=words):
        found = problem(tmp_path, REFERENCE.replace(old, new, 1))
        race(found, found.loads["tall"])
        race(found, found.loads["wide"])


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("return [32", "return [torch.ones(2)", r"make_init: init\.0 is a tensor"),
        ("return [32", "return [print", r"make_init: init\.0 is a builtin_function_or_method"),
        ('return [32, {"mode": "plain"}]', "return 32", r"make_init: must return a tuple or a list"),
        ('"mode": "plain"}]', '"mode": "odd"}]', r"reference: AssertionError"),
        ("return (torch.randn(rows, 32, generator=generator),)", "return torch.randn(rows, 32, generator=generator)",
         r"make_inputs: must return a tuple or a list"),
    ],
)  # fmt: skip
def test_a_fault_of_a_module_task_names_the_function(tmp_path: Path, old: str, new: str, words: str) -> None:
    toml = manifest("module", [("some", "args = { rows = 6 }")], baselines='["in_one_go"]')
    assert old in MODULE
    with pytest.raises(ProblemError, match=words):
        found = problem(tmp_path, MODULE.replace(old, new, 1), toml)
        race(found, found.loads["some"])


def test_the_weights_seed_does_not_show_in_the_harness_own_random_numbers(tmp_path: Path) -> None:
    toml = manifest("module", [("some", "args = { rows = 6 }")], baselines='["in_one_go"]')
    found = problem(tmp_path, MODULE, toml)
    state = torch.random.get_rng_state()
    found.loads["some"]
    assert torch.equal(state, torch.random.get_rng_state())
    assert found.seed is not None and found.training


def test_inputs_that_may_be_written_to_are_found_or_declared(tmp_path: Path) -> None:
    def writable(*patterns: str) -> list[str]:
        line = f"may_write = {list(patterns)}\nbaselines ="
        load = problem(tmp_path, REFERENCE, MANIFEST.replace("baselines =", line)).loads["wide"]
        return [spec.name for spec in load.inputs if spec.writable]

    assert writable() == ["data.3"]
    assert writable("data.1.*") == ["data.1.weight", "data.1.norm.bias", "data.3"]
    with pytest.raises(ProblemError, match=r"task\.toml: may_write: 'data\.9' fits no input of workload 'wide'"):
        writable("data.9")


def test_baselines_never_change_what_the_program_is_given(tmp_path: Path) -> None:
    found = problem(tmp_path, REFERENCE)
    load = found.loads["wide"]
    inputs = found.inputs(load, 5)
    before = {name: value.clone() for name, value in inputs.items()}
    found.formulation("eager", load, inputs)
    assert all(torch.equal(value.view(torch.int32), before[name].view(torch.int32)) for name, value in inputs.items())


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('call = "data"', 'call = "stream"', "call: Input should be 'tensors', 'data', 'arguments' or 'module'"),
        ('languages = ["python"]', 'languages = ["cpp"]', 'languages: call = "data" takes python and triton programs'),
        ('call = "data"', 'call = "data"\ndims = ["m"]', r"workload 'wide' must give exactly the dims"),
        (
            "[[workloads]]",
            '[[inputs]]\nname = "x"\ndtype = "int8"\nshape = []\n\n[[workloads]]',
            "inputs: has no place",
        ),
        ('call = "data"', 'call = "tensors"', "inputs: a task needs at least one"),
        ('call = "data"', 'call = "module"', r"reference\.py: make_init: not defined"),
        ('name = "w" }', "name = [1] }", r"workloads\.0\.args\.name"),
        ("[tolerance]\natol = 1e-4\nrtol = 1e-4\n", "", "tolerance: Field required, and reference.py defines no check"),
    ],
)
def test_what_has_no_place_in_such_a_task_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in MANIFEST
    with pytest.raises(TaskError, match=words) as error:
        write_task(tmp_path, REFERENCE, MANIFEST.replace(old, new, 1))
    assert str(tmp_path) in str(error.value)


def test_arguments_for_make_inputs_have_no_place_among_tensors(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r'workloads\.args: has no place under call = "tensors"'):
        write_task(tmp_path, toml=TOML.replace("n = 1000 }", "n = 1000 }\nargs = { a = 1 }"))


def asked(task: Task) -> str:
    return coder.ask(Assignment(
        task=task, language="python", hardware="here", intent=Intent(title="t", description=""), attempt=1,
        parent=None, parent_score=None, best=None, best_verdict=None, last=None, last_program=None,
    )).text  # fmt: skip


def test_the_prompt_states_how_the_entry_point_is_called(tmp_path: Path) -> None:
    data = write_task(tmp_path / "data", REFERENCE, MANIFEST.replace("baselines", 'may_write = ["data.1"]\nbaselines'))
    text = asked(data)
    assert "def scaled(data):" in text and "Tolerance: " in text
    assert "- wide: rows = 24, columns = 1000, scale = 0.5, turned = True, name = w" in text
    assert "Inputs are read-only, but for those that the reference writes to and data.1." in text
    arguments = asked(write_task(tmp_path / "arguments", ARGUMENTS + CHECK, manifest("arguments", SMALL)))
    assert "def scaled(*data):" in arguments and "the items of data as arguments" in arguments
    assert "judged by the task's own check" in arguments and "Tolerance" not in arguments
    toml = manifest("module", [("some", "")], baselines='["in_one_go"]')
    module = write_task(tmp_path / "module", MODULE, toml)
    assert "class scaled(torch.nn.Module):" in asked(module) and "under the seed of the reference module" in asked(
        module
    )
    assert "- some\n" in asked(module)
    reply = "```python\nclass scaled(torch.nn.Module):\n    pass\n```"
    assert isinstance(parse_program(reply, module, "python"), Program)
    assert isinstance(parse_program(reply.replace("scaled", "other"), module, "python"), Unusable)


def test_data_comes_apart_and_together_again() -> None:
    x = torch.arange(6.0).view(2, 3)
    value = (x, [None, {"a": x.T, 3: (True, -1, 1e300, "s", torch.int8)}], ())
    tree, tensors = taken_apart(value, "data")
    assert list(tensors) == ["data.0", "data.1.1.a"]
    again = put_together(tree, tensors)
    assert again[0] is x and again[1][1]["a"] is tensors["data.1.1.a"]
    assert again[1][1][3] == (True, -1, 1e300, "s", torch.int8) and again[2] == ()
    with pytest.raises(Unfit, match="path of two tensors"):
        taken_apart({"a.b": x, "a": {"b": x}}, "data")


@pytest.mark.parametrize("value", [(1,), 3, {"a": 1}, (1, 2, 3), None])
def test_another_structure_is_unfit(value: Any) -> None:
    tree, _ = taken_apart((torch.ones(1), torch.ones(2)), "output")
    assert [name for name, _ in leaves(tree, [1, 2], "output")] == ["output.0", "output.1"]
    with pytest.raises(Unfit, match="output must be a tuple of 2, and is"):
        leaves(tree, value, "output")


def test_only_layouts_that_fill_their_memory_are_kept() -> None:
    x = torch.zeros(2, 3, 4)
    assert dense_strides(x) is None
    assert dense_strides(x.permute(2, 0, 1)) == (1, 12, 4)
    assert dense_strides(x[:, :, ::2]) is None
    assert dense_strides(torch.zeros(3).expand(2, 3)) is None
    assert dense_strides(torch.zeros(1, 4, 5).transpose(1, 2)) == (20, 1, 5)


def test_a_handover_costs_what_copying_does_not_explain() -> None:
    assert overdue(1000.0, (1000.0, 0.0), 10.0) == 0.0
    assert overdue(3000.0, (1000.0, 70.0), 10.0) == pytest.approx(3000 - 1100 - 70 - 30)
