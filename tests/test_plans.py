"""A formulation with a plan: planned before it is timed, with the workload's numbers that it names."""

from __future__ import annotations

import time

import torch

from graph.report import baseline_view
from tasks.device import Cpu
from tasks.evaluator import BaselineTiming
from tasks.local import plain
from tasks.problem import Problem
from tasks.race import race
from tasks.task import find_task

GQA = "gqa_paged_decode_h32_kv4_d128_ps1"


def test_the_plan_is_no_part_of_the_latency_and_is_reported_beside_it() -> None:
    task = find_task(GQA).narrowed("python")
    problem = Problem(plain(task), Cpu())
    module = problem._module

    def plan_slow(kv_indptr: torch.Tensor, **_: torch.Tensor) -> list[int]:
        time.sleep(0.05)
        return kv_indptr.tolist()

    module.plan_slow, module.slow = plan_slow, module.per_sequence
    problem.baselines = ("slow", "padded")
    with torch.no_grad():
        timing = BaselineTiming.model_validate(race(problem, problem.loads["cpu_short_3"]))
    assert not timing.errors
    assert timing.plan_us["slow"] >= 50_000 > timing.latency_us["slow"]
    assert "plan" in str(baseline_view([timing]).renderables[0])  # type: ignore[attr-defined]
