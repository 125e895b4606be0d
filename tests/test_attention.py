"""Attention over paged caches: the references against dense math in float64, and page tables for any sizes."""

from __future__ import annotations

import importlib
import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_playbook_programs import imported

from tasks.sources.paging import lengths, page_table
from tasks.task import LIBRARY

GQA, MLA = "gqa_paged_decode_h32_kv4_d128_ps1", "mla_paged_decode_h16_ckv512_kpe64_ps1"
PREFILL, CPU = "mla_paged_prefill_causal_h16_ckv512_kpe64_ps1", "gqa_decode_cpu"
SIZES = {GQA: (3, 70, 4, 25), CPU: (3, 70, 4, 45), MLA: (3, 70, 4, 33), PREFILL: (5, 40, 3, 17)}
SCALE = 0.1352337747812271
Tensors = dict[str, torch.Tensor]


def attended(logits: list[float], values: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Softmax-weighted rows and the log-sum-exp to base 2, without any help of PyTorch's softmax."""
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    total = math.fsum(weights)
    row = sum(weight / total * value for weight, value in zip(weights, values, strict=True))
    assert isinstance(row, torch.Tensor)
    return row, top * math.log2(math.e) + math.log2(total)


def dense(name: str, given_: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """The formulas of the specification for each query, head and token, in float64."""
    x = {key: value.double() if value.is_floating_point() else value for key, value in given_.items()}
    queries = x["q"] if "q" in x else torch.cat([x["q_nope"], x["q_pe"]], -1)
    ends = x["kv_indptr"].tolist()
    starts = x["qo_indptr"].tolist() if "qo_indptr" in x else list(range(len(ends)))
    rows = []
    for b in range(len(ends) - 1):
        for query in range(starts[b], starts[b + 1]):
            seen = ends[b + 1] - ends[b] - (starts[b + 1] - 1 - query)
            pages = x["kv_indices"].tolist()[ends[b] : ends[b] + seen]
            for head in range(queries.shape[1]):
                if "k_cache" in x:
                    keys = torch.stack([x["k_cache"][page, 0, head // 8] for page in pages])
                    values = torch.stack([x["v_cache"][page, 0, head // 8] for page in pages])
                else:
                    values = torch.stack([x["ckv_cache"][page, 0] for page in pages])
                    keys = torch.cat([values, torch.stack([x["kpe_cache"][page, 0] for page in pages])], -1)
                logits = [SCALE * float((queries[query, head] * key).sum()) for key in keys]
                rows.append(attended(logits, values))
    output = torch.stack([row for row, _ in rows]).view(*queries.shape[:2], -1)
    return output, torch.tensor([lse for _, lse in rows], dtype=torch.float64).view(queries.shape[:2])


@pytest.mark.parametrize("name", SIZES)
def test_a_reference_is_what_dense_math_says(name: str) -> None:
    module = imported(LIBRARY / name / "reference.py")
    given_ = module.make_inputs(torch.Generator().manual_seed(5), *SIZES[name], SCALE)
    output, lse = module.reference(**given_, sm_scale=SCALE)
    expected, expected_lse = dense(name, given_)
    torch.testing.assert_close(lse.double(), expected_lse, atol=2e-5, rtol=1e-5)
    rounding = 2**-8 if output.dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(output.double(), expected, atol=1e-5, rtol=rounding)


def test_prefill_in_many_blocks_gives_the_same() -> None:
    module = imported(LIBRARY / PREFILL / "reference.py")
    given_ = module.make_inputs(torch.Generator().manual_seed(6), 40, 300, 3, 90, SCALE)
    whole = module.reference(**given_, sm_scale=SCALE)
    blocks = module._blocks(given_["qo_indptr"], given_["kv_indptr"])
    module.LOGITS = 1000  # of a module that is this test's own
    assert len(module._blocks(given_["qo_indptr"], given_["kv_indptr"])) > len(blocks)
    for got, want in zip(module.reference(**given_, sm_scale=SCALE), whole, strict=True):
        torch.testing.assert_close(got, want, atol=1e-4, rtol=2**-7)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(0, 400), st.integers(0, 5000), st.integers(0, 2**40))
def test_page_tables_have_no_empty_sequence_and_no_page_twice(batch: int, more: int, free: int, seed: int) -> None:
    total, pages = batch + more, more + 1 + free
    indptr, indices = page_table(torch.Generator().manual_seed(seed), batch, total, pages)
    assert indptr.dtype == indices.dtype == torch.int32
    ends = indptr.tolist()
    assert len(ends) == batch + 1 and ends[0] == 0 and ends[-1] == total == len(indices)
    parts = [indices.tolist()[start:end] for start, end in pairwise(ends)]
    assert all(parts)
    assert {part[0] for part in parts} == {parts[0][0]}
    own = [page for part in parts for page in part[1:]]
    assert len({*own, parts[0][0]}) == len(own) + 1
    assert min(indices.tolist()) >= 0 and max(indices.tolist()) < pages


def test_lengths_are_heavy_tailed() -> None:
    found = lengths(torch.Generator().manual_seed(1), 64, 28815)
    mean = float(found.double().mean())
    assert int(found.max()) > 5 * mean and int(found.median()) < mean / 2


@pytest.mark.parametrize(("batch", "total", "pages"), [(3, 2, 9), (0, 4, 9), (2, 12, 10)])
def test_numbers_that_do_not_fit_together_are_refused(batch: int, total: int, pages: int) -> None:
    with pytest.raises(ValueError, match=r"sum to|need \d+ pages"):
        page_table(torch.Generator(), batch, total, pages)


@pytest.mark.parametrize("name", [GQA, MLA, PREFILL])
def test_a_plain_program_is_right(name: str) -> None:
    program = importlib.import_module(f"programs.tasks.{name}_torch")
    module = imported(LIBRARY / name / "reference.py")
    given_ = module.make_inputs(torch.Generator().manual_seed(8), *SIZES[name], SCALE)
    expected = module.reference(**given_, sm_scale=SCALE)
    outputs = [torch.full_like(tensor, float("nan")) for tensor in expected]
    program.attention(*given_.values(), *outputs, *SIZES[name], SCALE)
    for got, want in zip(outputs, expected, strict=True):
        torch.testing.assert_close(got, want, atol=1e-2, rtol=1e-2)
