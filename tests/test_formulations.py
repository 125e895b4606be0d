"""A formulation gets the tensors, and those dims, params and names that it has parameters for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_task import TOML, write_task

from tasks.device import Cpu
from tasks.local import plain
from tasks.problem import Problem
from tasks.race import race

REFERENCE = """
import torch

def make_inputs(generator, m, n, factor, workload):
    first = 1.0 if workload == "wide" else 2.0
    return {"x": torch.full((m, n), first), "s": torch.rand(m, generator=generator) + 0.5}

def reference(x, s, factor, n):
    return x * s[:, None] * factor, torch.full((x.shape[0],), n, dtype=torch.int32)

def asks(n, s, x, *, factor):
    return reference(x, s, factor, n)

compiled = torch.compile(asks, backend="eager", dynamic=False)

def knows(x, s):
    return x * s[:, None] * 3.0, torch.full((x.shape[0],), x.shape[1], dtype=torch.int32)

def forgets(x, s):
    return x * s[:, None], torch.full((x.shape[0],), x.shape[1], dtype=torch.int32)
"""


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    toml = TOML.replace('dims = ["m", "n"]', 'dims = ["m", "n"]\nparams = ["factor"]')
    toml = toml.replace('["eager", "wrong", "raising"]', '["asks", "compiled", "knows", "forgets"]')
    toml = toml.replace(" }\n", " }\nparams = { factor = 3.0 }\n")
    task = write_task(tmp_path / "scaled", REFERENCE, toml)
    return Problem(plain(task), Cpu())


def test_numbers_and_the_name_come_to_who_asks_for_them(problem: Problem) -> None:
    wide, tall = problem.loads["wide"], problem.loads["tall"]
    assert float(problem.inputs(wide, 1)["x"].unique()) == 1.0
    assert float(problem.inputs(tall, 1)["x"].unique()) == 2.0
    inputs = problem.inputs(tall, 1)
    scaled, count = problem.reference(tall, inputs).values()
    assert torch.equal(scaled, 6.0 * inputs["s"][:, None].expand(300, 40))
    assert count.unique().tolist() == [40]


def test_a_race_gives_every_formulation_what_it_asks_for(problem: Problem) -> None:
    found = race(problem, problem.loads["tall"])
    assert set(found["latency_us"]) == {"asks", "compiled", "knows"}
    assert "disagrees with the reference" in found["errors"]["forgets"]
