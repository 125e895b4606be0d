"""The tolerance: element by element, and row by row where a task asks for it."""

from __future__ import annotations

import math

import pytest
import torch

from tasks.closeness import Tolerance, close, wrong
from tasks.task import find_task

ROWS = Tolerance(1e-2, 1e-2, row_norm=2e-2)


def test_zeros_are_no_answer_where_all_values_are_small() -> None:
    expected = 1e-3 * torch.randn(4, 64, generator=torch.Generator().manual_seed(1))
    got = expected.clone()
    got[2] = 0
    assert close(got, expected, Tolerance(1e-2, 1e-2))
    assert not close(got, expected, ROWS)
    assert wrong(got, expected, ROWS).sum(1).tolist() == [0, 0, 64, 0]
    assert close(expected * 1.01, expected, ROWS) and not close(expected * 1.03, expected, ROWS)
    assert close(expected * 1.03, expected, ROWS.doubled())


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_only_close_to_itself(value: float) -> None:
    expected = torch.ones(3, 8)
    expected[1, 4] = value
    assert close(expected.clone(), expected, ROWS)
    assert not close(torch.ones(3, 8), expected, ROWS)
    assert not close(expected, torch.ones(3, 8), ROWS)
    assert close(torch.zeros(2, 4), torch.zeros(2, 4), ROWS)


@pytest.mark.parametrize("name", ["gqa_paged_decode_h32_kv4_d128_ps1", "mla_paged_decode_h16_ckv512_kpe64_ps1"])
def test_attention_that_leaves_out_one_token_in_fifty_is_wrong(name: str) -> None:
    task = find_task(name)
    assert task.tolerance is not None
    bound = Tolerance(**task.tolerance.model_dump())
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(8000, 128, generator=generator)
    weights = (0.3 * torch.randn(8000, generator=generator)).softmax(0)
    expected = weights @ values
    short = (weights[160:] / weights[160:].sum()) @ values[160:]
    assert close(short, expected, Tolerance(bound.atol, bound.rtol))
    assert not close(short[None], expected[None], bound)
    assert close((weights.bfloat16().float() @ values.bfloat16().float()).bfloat16().float(), expected, bound)


def test_a_tolerance_says_all_that_it_asks_for() -> None:
    assert str(Tolerance(1e-2, 0.0)) == "|got - expected| <= 0.01 + 0 * |expected|"
    assert str(ROWS).endswith(", ||got - expected|| <= 0.02 * ||expected|| in each row")
