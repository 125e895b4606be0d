"""The shipped task `trimul`: its oracle, its inputs, its shapes, and what its tolerance lets through."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from state.program import Language, Program
from state.verdict import Passed
from tasks.closeness import close
from tasks.device import Cpu
from tasks.local import LocalEvaluator, plain
from tasks.problem import Load, Problem, Tensors
from tasks.task import Workload, find_task

PROGRAMS = Path(__file__).parent / "programs" / "tasks"
TASK = find_task("trimul")
BENCHMARKS = [(2, 256, 128, ""), (1, 768, 128, "cauchy"), (2, 256, 384, "masked"), (1, 512, 128, ""),
              (1, 1024, 128, "cauchy"), (1, 768, 384, "masked"), (1, 1024, 384, "")]  # fmt: skip
TESTS = [(1, 32, 128, ""), (1, 32, 128, "masked"), (2, 64, 256, ""), (2, 64, 256, "masked"), (1, 128, 768, ""),
         (1, 256, 128, ""), (1, 256, 128, "masked"), (2, 768, 128, ""), (1, 1024, 384, "masked"), (1, 1024, 768, ""),
         (1, 1024, 768, "masked"), (1, 32, 128, "cauchy"), (2, 64, 256, "cauchy"), (1, 128, 768, "cauchy"),
         (1, 256, 128, "cauchy"), (2, 768, 128, "cauchy"), (1, 1024, 384, "cauchy masked"),
         (1, 1024, 768, "cauchy masked")]  # fmt: skip
Arrays = dict[str, Any]


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(plain(TASK.narrowed("python")), Cpu())


@pytest.fixture
def eager() -> Iterator[None]:
    """Compiled parts run as they are written."""
    with torch.compiler.set_stance("force_eager"), torch.no_grad():
        yield


def inputs_of(problem: Problem, load: Load, seed: int = 11) -> tuple[Tensors, torch.Tensor]:
    inputs = problem.inputs(load, seed)
    return inputs, problem.reference(load, inputs)["out"]


def is_close(problem: Problem, got: torch.Tensor, expected: torch.Tensor) -> bool:
    return close(got, expected, problem.tolerance)


def sigmoid(value: Any) -> Any:
    return 1 / (1 + np.exp(-value))


def normalised(rows: Any, gain: Any, bias: Any) -> Any:
    centred = rows - rows.mean(-1)[..., None]
    return centred / np.sqrt((centred**2).mean(-1)[..., None] + 1e-5) * gain + bias


def by_pairs(t: Arrays, change: str = "") -> Any:
    """The formula in float64 and numpy, one pair (i, j) at a time; `change` makes one of the mistakes below."""
    z = normalised(t["x"], t["norm_weight"], t["norm_bias"])
    mask = np.ones_like(t["mask"]) if change == "mask ignored" else t["mask"]
    left, right = (
        np.einsum("...c,hc->...h", z, t[f"{side}_proj"])
        * (1 if change == f"no {side} gate" else sigmoid(np.einsum("...c,hc->...h", z, t[f"{side}_gate"])))
        * (1 if change == f"mask on one side, not on the {side}" else mask[..., None])
        for side in ("left", "right")
    )
    gate = 1 if change == "no output gate" else sigmoid(np.einsum("...c,hc->...h", z, t["out_gate"]))
    if change == "incoming edges":
        left, right = left.swapaxes(1, 2), right.swapaxes(1, 2)
    pairs = np.empty_like(left)
    for b, i, j in np.ndindex(*t["x"].shape[:3]):
        pairs[b, i, j] = (left[b, i] * right[b, j]).sum(0)
    if change != "no second normalisation":
        pairs = normalised(pairs, t["out_norm_weight"], 0 if change == "no second bias" else t["out_norm_bias"])
    return np.einsum("...h,ch->...c", pairs * gate, t["out_proj"])


def as_arrays(inputs: Tensors) -> Arrays:
    return {name: tensor.double().numpy() for name, tensor in inputs.items()}


def test_the_oracle_is_the_formula(problem: Problem) -> None:
    for load in problem.loads.values():
        inputs, expected = inputs_of(problem, load)
        want = torch.from_numpy(by_pairs(as_arrays(inputs)))
        assert torch.allclose(expected.double(), want, atol=1e-6, rtol=1e-6), load.name


def test_the_oracle_is_the_same_in_strips(problem: Problem) -> None:
    load = problem.loads["cpu_b3_n9_d48_masked"]
    inputs, expected = inputs_of(problem, load)
    two_rows_and_one_left = problem.function("reference")(**inputs, strip=2 * 9 * 48)
    assert torch.allclose(two_rows_and_one_left, expected, atol=1e-6)


@pytest.mark.parametrize("function", ["single", "half", "half_compiled", "half_joined"])
def test_the_formulations_are_right_on_every_workload(problem: Problem, eager: None, function: str) -> None:
    assert function in (*TASK.baselines, *TASK.cuda_baselines)
    for load in problem.loads.values():
        inputs, expected = inputs_of(problem, load)
        assert is_close(problem, problem.formulation(function, load, inputs)["out"], expected), load.name


@pytest.mark.parametrize(
    "mistake",
    ["mask ignored", "mask on one side, not on the left", "no left gate", "no right gate", "no output gate",
     "incoming edges", "no second normalisation", "no second bias"],
)  # fmt: skip
def test_a_mistake_is_outside_the_tolerance(problem: Problem, mistake: str) -> None:
    """Where half of the mask is zero, which is where each of these shows, one element in ten at least is off."""
    inputs, expected = inputs_of(problem, problem.loads["cpu_b3_n9_d48_masked"])
    got = torch.from_numpy(by_pairs(as_arrays(inputs), mistake)).float()
    within = (got - expected).abs() <= problem.tolerance.atol + problem.tolerance.rtol * expected.abs()
    assert not is_close(problem, got, expected)
    if not mistake.startswith("mask on one side"):
        assert float(within.double().mean()) < 0.9


def test_inputs_are_what_the_workload_is_named_after(problem: Problem) -> None:
    for name, load in problem.loads.items():
        inputs = problem.inputs(load, 5)
        assert set(inputs["mask"].unique().tolist()) == ({0.0, 1.0} if "masked" in name else {1.0})
        assert (float(inputs["x"].abs().max()) > 100) == ("cauchy" in name)
        assert float(inputs["left_proj"].std()) == pytest.approx(load.dims["hidden"] ** -0.5, rel=0.1)
        assert float(inputs["out_proj"].std()) == pytest.approx(load.dims["dim"] ** -0.5, rel=0.1)


def test_the_published_shapes_are_timed_and_checked() -> None:
    def shapes(loads: tuple[Workload, ...]) -> list[tuple[int, int, int, str]]:
        found = []
        for load in loads:
            size = f"b{load.dims['bs']}_n{load.dims['n']}_d{load.dims['dim']}"
            assert load.name.startswith(size)
            assert load.dims["hidden"] == 128
            words = load.name.removeprefix(size).strip("_").replace("_", " ")
            found.append((load.dims["bs"], load.dims["n"], load.dims["dim"], words))
        return sorted(found)

    for language in ("triton", "cuda"):
        narrowed = TASK.narrowed(language)
        assert shapes(narrowed.workloads) == sorted(BENCHMARKS)
        assert shapes(narrowed.checked) == sorted(TESTS)


def test_no_floor_is_higher_than_the_work_there_is() -> None:
    """Operations count the six projections alone; with the sum over k there are more of them."""
    dims = TASK.workloads[0].dims
    assert TASK.operations(dims) == 2 * 6 * 2 * 256 * 256 * 128 * 128


def program(name: str, language: Language) -> Program:
    return Program(language=language, source=(PROGRAMS / name).read_text())


def test_a_program_in_pytorch_passes() -> None:
    evaluator = LocalEvaluator(TASK.narrowed("python"), threads=1, rounds=3)
    try:
        verdict = evaluator.evaluate(program("trimul_torch.py", "python"))
    finally:
        evaluator.close()
    assert isinstance(verdict, Passed), verdict
    assert [timing.workload for timing in verdict.timings] == [
        "cpu_b1_n48_d64", "cpu_b2_n24_d96_masked", "cpu_b1_n40_d32_cauchy",
    ]  # fmt: skip


def imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
def test_a_program_in_triton_is_right_in_the_interpreter(problem: Problem) -> None:
    function: Callable[..., None] = imported(PROGRAMS / "trimul.py").trimul
    for load in problem.loads.values():
        inputs, expected = inputs_of(problem, load)
        out = torch.full_like(expected, float("nan"))
        function(*inputs.values(), out, *load.dims.values())
        assert is_close(problem, out, expected), load.name


@pytest.mark.gpu
@pytest.mark.parametrize(("file", "language"), [("trimul.py", "triton"), ("trimul_torch.py", "python")])
def test_simple_programs_pass_on_a_gpu(file: str, language: Language) -> None:
    evaluator = LocalEvaluator(TASK.narrowed(language, "cuda"), device="cuda")
    try:
        verdict = evaluator.evaluate(program(file, language))
    finally:
        evaluator.close()
    assert isinstance(verdict, Passed), verdict
    assert len(verdict.timings) == len(BENCHMARKS)
