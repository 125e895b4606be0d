"""Inputs, oracle and PyTorch formulations of grouped-query attention over a paged cache, in float32 on a CPU."""

import math
import runpy
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

paging = runpy.run_path(str(Path(__file__).with_name("paging.py")))
HEADS, KV_HEADS, DIM = 32, 4, 128
SHARE = HEADS // KV_HEADS
LOG2_E = math.log2(math.e)
UNIT = 3**0.5


def make_inputs(
    generator: torch.Generator, batch_size: int, num_pages: int, len_indptr: int, num_kv_indices: int, sm_scale: float
) -> dict[str, Tensor]:
    """Uniform queries, keys and values of variance 1; a page table as paging.py makes it."""
    indptr, indices = paging["page_table"](generator, batch_size, num_kv_indices, num_pages)
    return {
        "q": _uniform((batch_size, HEADS, DIM), generator),
        "k_cache": _uniform((num_pages, 1, KV_HEADS, DIM), generator),
        "v_cache": _uniform((num_pages, 1, KV_HEADS, DIM), generator),
        "kv_indptr": indptr,
        "kv_indices": indices,
    }


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    words = torch.empty(math.prod(shape) // 4, dtype=torch.int64, device=generator.device)
    words.random_(-(2**63), None, generator=generator)  # four values at a time
    return words.view(torch.int16).view(shape) * (UNIT / 2**15)


def reference(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, sm_scale: float
) -> tuple[Tensor, Tensor]:
    """In float64, sequence by sequence, rounded once."""
    output, lse = torch.empty_like(q), torch.empty(q.shape[:2], device=q.device)
    ends = kv_indptr.tolist()
    for row, (start, end) in enumerate(pairwise(ends)):
        pages = kv_indices[start:end]
        keys = k_cache[pages, 0].double().permute(1, 2, 0)
        values = v_cache[pages, 0].double().transpose(0, 1)
        logits = (q[row].double() * sm_scale).view(KV_HEADS, SHARE, DIM) @ keys
        output[row] = (logits.softmax(-1) @ values).view(HEADS, DIM)
        lse[row] = logits.logsumexp(-1).view(HEADS) * LOG2_E
    return output, lse


def per_sequence(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, sm_scale: float
) -> tuple[Tensor, Tensor]:
    """Two batched products for each sequence; the heads of a group are the rows of one of them."""
    output, lse = torch.empty_like(q), torch.empty(q.shape[:2], device=q.device)
    ends = kv_indptr.tolist()
    queries = (q * sm_scale).view(-1, KV_HEADS, SHARE, DIM)
    for row, (start, end) in enumerate(pairwise(ends)):
        pages = kv_indices[start:end]
        keys, values = k_cache[:, 0].index_select(0, pages), v_cache[:, 0].index_select(0, pages)
        logits = queries[row] @ keys.permute(1, 2, 0)
        top = logits.amax(-1, keepdim=True)
        weights = logits.sub_(top).exp_()
        total = weights.sum(-1, keepdim=True)
        output[row] = (weights @ values.transpose(0, 1)).div_(total).view(HEADS, DIM)
        lse[row] = top.add_(total.log_()).mul_(LOG2_E).view(HEADS)
    return output, lse


def flash(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, sm_scale: float
) -> tuple[Tensor, Tensor]:
    """PyTorch's own flash attention on one sequence after another; the heads of a group are its queries."""
    output, lse = torch.empty_like(q), torch.empty(q.shape[:2], device=q.device)
    ends = kv_indptr.tolist()
    for row, (start, end) in enumerate(pairwise(ends)):
        pages = kv_indices[start:end]
        keys = k_cache[:, 0].index_select(0, pages)[None].transpose(1, 2)
        values = v_cache[:, 0].index_select(0, pages)[None].transpose(1, 2)
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q[row].view(1, KV_HEADS, SHARE, DIM), keys, values, scale=sm_scale
        )
        output[row], lse[row] = found[0].reshape(HEADS, DIM), found[1].reshape(HEADS) * LOG2_E
    return output, lse


def padded(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, sm_scale: float
) -> tuple[Tensor, Tensor]:
    """All sequences as one batch, as long as the longest of them."""
    places = torch.arange(int(kv_indptr.diff().max()), device=q.device) + kv_indptr[:-1, None]
    left_out = places >= kv_indptr[1:, None]
    pages = kv_indices[places.clamp_(max=len(kv_indices) - 1)]
    keys, values = k_cache[pages, 0].permute(0, 2, 3, 1), v_cache[pages, 0].transpose(1, 2)
    logits = (q * sm_scale).view(-1, KV_HEADS, SHARE, DIM) @ keys
    logits.masked_fill_(left_out[:, None, None], float("-inf"))
    top = logits.amax(-1, keepdim=True)
    weights = logits.sub_(top).exp_()
    total = weights.sum(-1, keepdim=True)
    output = (weights @ values).div_(total)
    return output.view(q.shape), top.add_(total.log_()).mul_(LOG2_E).view(q.shape[:2])
