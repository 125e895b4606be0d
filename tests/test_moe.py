"""The shipped mixture of experts: routing, oracle, inputs, workloads, and what its tolerance lets through."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from functools import cache
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
from tasks.task import find_task

NAME = "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048"
PROGRAMS = Path(__file__).parent / "programs" / "tasks"
TASK = find_task(NAME)
PUBLISHED = [(1, 32), (7, 192), (14, 0), (15, 32), (16, 224), (32, 32), (52, 160), (53, 32), (54, 128), (55, 128),
             (56, 64), (57, 96), (58, 64), (59, 160), (62, 96), (80, 96), (901, 96), (11948, 128),
             (14107, 32)]  # fmt: skip
"""Tokens and first local expert of each workload."""
DIMS = {"num_experts": 256, "num_local_experts": 32, "hidden_size": 256, "intermediate_size": 128,
        "gemm1_out_size": 256, "local_expert_offset": 96}  # fmt: skip
FACTOR = 2.5
Chosen = dict[int, float]
"""Share by expert."""


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem(plain(TASK.narrowed("python")), Cpu())


@pytest.fixture
def eager() -> Iterator[None]:
    """Compiled parts run as they are written."""
    with torch.compiler.set_stance("force_eager"), torch.no_grad():
        yield


def routed(logits: Any, bias: Any, factor: float, change: str = "") -> Chosen:
    """The experts of one token by sorted lists, in float64; `change` makes one of the mistakes below."""
    score = {e: 1 / (1 + np.exp(-value)) for e, value in enumerate(logits)}
    choice = {e: value + (0 if change == "no bias" else bias[e]) for e, value in score.items()}
    groups = 4 if change == "four groups" else 8
    members = np.array_split(np.arange(len(logits)), groups)
    counted = 1 if change == "largest alone" else 2
    strength = [sum(sorted((choice[e] for e in group), reverse=True)[:counted]) for group in members]
    kept = {"three groups kept": 3, "no groups": 8, "four groups": 2}.get(change, 4)
    best = sorted(range(groups), key=lambda g: -strength[g])[:kept]
    allowed = [e for g in best for e in members[g]]
    chosen = sorted(allowed, key=lambda e: -choice[e])[: 6 if change == "six experts" else 8]
    worth = {int(e): float(choice[e] if change == "bias in the shares" else score[e]) for e in chosen}
    return {e: factor * value / sum(worth.values()) for e, value in worth.items()}


def by_token(inputs: Tensors, offset: int, factor: float, change: str = "") -> torch.Tensor:
    """The layer in float64 and numpy, a token and an expert at a time, blocks written out."""
    t = {name: tensor.double().numpy() for name, tensor in inputs.items()}
    count, wide, hidden = t["gemm1_weights"].shape
    inner = wide // 2
    out = np.zeros((len(t["hidden_states"]), hidden))

    @cache
    def weight(which: str, local: int) -> Any:
        return t[f"{which}_weights"][local] * np.kron(t[f"{which}_weights_scale"][local], np.ones((128, 128)))

    for token in range(len(out)):
        x = np.concatenate([
            t["hidden_states"][token, 128 * b : 128 * b + 128] * t["hidden_states_scale"][b, token]
            for b in range(hidden // 128)
        ])  # fmt: skip
        shares = routed(t["routing_logits"][token], t["routing_bias"], factor, change)
        for expert, share in shares.items():
            local = expert - offset - (change == "next expert's weights")
            if not 0 <= local < count:
                continue
            product = weight("gemm1", local) @ x
            gate, linear = product[inner:], product[:inner]
            if change == "first half is the gate":
                gate, linear = linear, gate
            silu = gate if change == "no silu" else gate / (1 + np.exp(-gate))
            out[token] += share * (weight("gemm2", local) @ (linear * silu))
    return torch.from_numpy(out)


def made(problem: Problem, tokens: int, seed: int = 3) -> tuple[Tensors, torch.Tensor]:
    """Inputs as on the GPU but for the sizes of the products, and the oracle's output."""
    inputs: Tensors = problem.function("make_inputs")(
        torch.Generator().manual_seed(seed), seq_len=tokens, routed_scaling_factor=FACTOR, **DIMS
    )
    return inputs, problem.function("reference")(
        **inputs, local_expert_offset=DIMS["local_expert_offset"], routed_scaling_factor=FACTOR
    )


@pytest.fixture(scope="module")
def draws(problem: Problem) -> list[tuple[Tensors, torch.Tensor]]:
    """Inputs of the smallest workloads with the oracle's outputs; an evaluation checks more draws than these."""
    return [made(problem, tokens, seed) for tokens, seed in ((1, 0), (1, 1), (1, 2), (1, 3), (7, 4), (16, 5))]


def is_close(problem: Problem, got: torch.Tensor, expected: torch.Tensor) -> bool:
    return close(got, expected, problem.tolerance)


def numbers(load: Load) -> tuple[int, float]:
    return load.dims["local_expert_offset"], load.params["routed_scaling_factor"]


def test_the_oracle_is_the_layer_token_by_token(problem: Problem) -> None:
    for name in ("cpu_t1_from8", "cpu_t37_from60", "cpu_t19_from24"):
        load = problem.loads[name]
        inputs = problem.inputs(load, 17)
        expected = problem.reference(load, inputs)["output"]
        want = by_token(inputs, *numbers(load))
        assert torch.allclose(expected.double(), want, atol=1e-3, rtol=2**-8), name


def test_eight_experts_of_four_groups_share_the_factor(problem: Problem) -> None:
    inputs, _ = made(problem, 64)
    experts, shares = problem.function("route")(inputs["routing_logits"], inputs["routing_bias"], FACTOR)
    assert experts.shape == shares.shape == (64, 8)
    for token in range(64):
        assert len(set(experts[token].tolist())) == 8
        assert len({expert // 32 for expert in experts[token].tolist()}) <= 4
        want = routed(inputs["routing_logits"][token].double().numpy(), inputs["routing_bias"].double().numpy(), FACTOR)
        assert dict(zip(experts[token].tolist(), shares[token].tolist(), strict=True)) == pytest.approx(want, rel=1e-5)
    assert torch.allclose(shares.sum(1), torch.tensor(FACTOR))


def test_the_bias_chooses_and_has_no_share(problem: Problem) -> None:
    logits, bias = torch.zeros(1, 64), torch.zeros(64)
    bias[[3, 60]] = 0.25
    experts, shares = problem.function("route")(logits, bias.bfloat16(), 1.0)
    assert {3, 60} <= set(experts[0].tolist())
    assert torch.allclose(shares, torch.tensor(1 / 8))


def test_a_token_without_a_local_expert_is_zero_and_ranks_add_up(problem: Problem) -> None:
    """Each of the two ranks that share a group's experts gives its own part of what one rank with both gives."""
    inputs, whole = made(problem, 24)
    parts = []
    for at in (0, 16):
        own = {key: value[at : at + 16] if key.startswith("gemm") else value for key, value in inputs.items()}
        parts.append(
            problem.function("reference")(**own, local_expert_offset=96 + at, routed_scaling_factor=FACTOR).float()
        )
    assert torch.allclose(parts[0] + parts[1], whole.float(), atol=0.5, rtol=0.01)
    experts, _ = problem.function("route")(inputs["routing_logits"], inputs["routing_bias"], FACTOR)
    idle = ~((experts >= 96) & (experts < 128)).any(1)
    assert 0 < int(idle.sum()) < 24
    assert not whole[idle].any()
    assert whole[~idle].any(1).all()


@pytest.mark.parametrize("function", ["by_expert", "by_expert_compiled", "block_scaled", "grouped"])
def test_the_formulations_are_right_on_every_workload(problem: Problem, eager: None, function: str) -> None:
    assert function in (*TASK.baselines, *TASK.cuda_baselines)
    for name, load in problem.loads.items():
        inputs = problem.inputs(load, 23)
        got, expected = (problem.formulation(f, load, inputs)["output"] for f in (function, "reference"))
        bound = problem.tolerance.atol + problem.tolerance.rtol * expected.float().abs()
        within = (got - expected).float().abs() <= bound
        assert float(within.double().mean()) > 0.95, name


def test_a_formulation_without_a_local_token_gives_zeros(problem: Problem, eager: None) -> None:
    load = problem.loads["cpu_t1_from8"]
    inputs = problem.inputs(load, 29)
    inputs["routing_logits"][0, 8:16] = -20.0
    for function in (*TASK.baselines, *TASK.cuda_baselines, "reference"):
        assert not problem.formulation(function, load, inputs)["output"].any(), function


@pytest.mark.parametrize(
    "mistake",
    ["no bias", "bias in the shares", "three groups kept", "no groups", "four groups", "largest alone", "six experts",
     "next expert's weights", "first half is the gate", "no silu", "no factor"],
)  # fmt: skip
def test_a_mistake_is_outside_the_tolerance_of_some_draw(
    problem: Problem, draws: list[tuple[Tensors, torch.Tensor]], mistake: str
) -> None:
    factor = 1.0 if mistake == "no factor" else FACTOR
    wrong = [by_token(inputs, DIMS["local_expert_offset"], factor, mistake).bfloat16() for inputs, _ in draws]
    assert not all(is_close(problem, got, expected) for got, (_, expected) in zip(wrong, draws, strict=True))


def test_no_draw_refuses_the_layer_itself(problem: Problem, draws: list[tuple[Tensors, torch.Tensor]]) -> None:
    for inputs, expected in draws:
        assert is_close(problem, by_token(inputs, DIMS["local_expert_offset"], FACTOR).bfloat16(), expected)


def test_load_is_uneven_and_no_workload_is_empty(problem: Problem) -> None:
    for tokens, seed in ((1, 1), (1, 2), (1, 3), (901, 4)):
        inputs: Tensors = problem.function("make_inputs")(
            torch.Generator().manual_seed(seed), seq_len=tokens, routed_scaling_factor=FACTOR, **DIMS
        )
        experts, _ = problem.function("route")(inputs["routing_logits"], inputs["routing_bias"], FACTOR)
        loads = torch.bincount(experts.flatten(), minlength=256)[96:128]
        assert int(loads.sum()) > 0
        if tokens > 1:
            assert int(loads.max()) > 2 * float(loads.double().mean())


def test_fp8_values_are_finite_and_outputs_are_some_tens(problem: Problem) -> None:
    inputs, expected = made(problem, 57)
    for name in ("hidden_states", "gemm1_weights", "gemm2_weights"):
        values = inputs[name].float()
        assert bool(values.isfinite().all())
        assert 400 < float(values.abs().max()) <= 448
    busy = expected.float()[expected.any(1)]
    assert 10 < float(busy.std()) < 100


def test_the_nineteen_published_workloads_are_timed() -> None:
    for language in ("triton", "cuda"):
        loads = TASK.narrowed(language).workloads
        assert [(load.dims["seq_len"], load.dims["local_expert_offset"]) for load in loads] == PUBLISHED
        assert {load.params["routed_scaling_factor"] for load in loads} == {FACTOR}
        fixed = ("num_experts", "num_local_experts", "hidden_size", "intermediate_size", "gemm1_out_size")
        assert {tuple(load.dims[name] for name in fixed) for load in loads} == {(256, 32, 7168, 2048, 4096)}
    extents = {tensor.name: tensor.extents(loads[0].dims) for tensor in (*TASK.inputs, *TASK.outputs)}
    assert extents == {
        "routing_logits": (1, 256), "routing_bias": (256,), "hidden_states": (1, 7168),
        "hidden_states_scale": (56, 1), "gemm1_weights": (32, 4096, 7168), "gemm1_weights_scale": (32, 32, 56),
        "gemm2_weights": (32, 7168, 2048), "gemm2_weights_scale": (32, 56, 16), "output": (1, 7168),
    }  # fmt: skip


def program(name: str, language: Language) -> Program:
    return Program(language=language, source=(PROGRAMS / name).read_text())


def test_a_program_in_pytorch_passes_and_its_receipt_says_what_is_synthetic() -> None:
    evaluator = LocalEvaluator(TASK.narrowed("python"), threads=1, rounds=3)
    try:
        verdict = evaluator.evaluate(program(f"{NAME}_torch.py", "python"))
    finally:
        evaluator.close()
    assert isinstance(verdict, Passed), verdict
    assert [timing.workload for timing in verdict.timings] == ["cpu_t1_from8", "cpu_t37_from60", "cpu_t90_from0"]
    assert verdict.receipt is not None
    assert "synthetic routing logits" in verdict.receipt.inputs


def imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="needs Triton's interpreter")
def test_a_program_in_triton_is_right_in_the_interpreter(problem: Problem) -> None:
    function: Callable[..., None] = imported(PROGRAMS / f"{NAME}.py").moe
    for load in problem.loads.values():
        inputs = problem.inputs(load, 31)
        expected = problem.reference(load, inputs)["output"]
        out = torch.full_like(expected, float("nan"))
        function(*inputs.values(), out, *load.dims.values(), *load.params.values())
        assert is_close(problem, out, expected), load.name


@pytest.mark.gpu
@pytest.mark.parametrize(("file", "language"), [(f"{NAME}.py", "triton"), (f"{NAME}_torch.py", "python")])
def test_simple_programs_pass_on_a_gpu(file: str, language: Language) -> None:
    evaluator = LocalEvaluator(TASK.narrowed(language, "cuda"), device="cuda")
    try:
        verdict = evaluator.evaluate(program(file, language))
    finally:
        evaluator.close()
    assert isinstance(verdict, Passed), verdict
    assert len(verdict.timings) == len(PUBLISHED)
