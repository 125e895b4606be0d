"""Inputs, oracle and formulations of grouped-query attention, one query per sequence, over a paged cache."""

import functools
import math
import runpy
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

paging = runpy.run_path(str(Path(__file__).with_name("paging.py")))
HEADS, KV_HEADS, DIM = 32, 4, 128
SHARE = HEADS // KV_HEADS
LOG2_E = math.log2(math.e)
WORKSPACE = 128 << 20


def make_inputs(
    generator: torch.Generator, batch_size: int, num_pages: int, len_indptr: int, num_kv_indices: int, sm_scale: float
) -> dict[str, Tensor]:
    """Normal queries, keys and values; a page table as paging.py makes it."""
    indptr, indices = paging["page_table"](generator, batch_size, num_kv_indices, num_pages)
    return {
        "q": _normal((batch_size, HEADS, DIM), generator),
        "k_cache": _normal((num_pages, 1, KV_HEADS, DIM), generator),
        "v_cache": _normal((num_pages, 1, KV_HEADS, DIM), generator),
        "kv_indptr": indptr,
        "kv_indices": indices,
    }


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.bfloat16)


def reference(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, sm_scale: float
) -> tuple[Tensor, Tensor]:
    """In float32, sequence by sequence: the heads of a group are the rows of one product."""
    output, lse = _empty(q)
    ends = kv_indptr.tolist()
    for row, (start, end) in enumerate(pairwise(ends)):
        pages = kv_indices[start:end]
        keys = k_cache[pages, 0].float().permute(1, 2, 0)
        values = v_cache[pages, 0].float().transpose(0, 1)
        logits = (q[row].float() * sm_scale).view(KV_HEADS, SHARE, DIM) @ keys
        output[row] = (logits.softmax(-1) @ values).view(HEADS, DIM).bfloat16()
        lse[row] = logits.logsumexp(-1).view(HEADS) * LOG2_E
    return output, lse


def _empty(q: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), torch.empty(q.shape[:2], dtype=torch.float32, device=q.device)


def plan_per_sequence(q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor) -> list[int]:
    """The offsets on the host."""
    return kv_indptr.tolist()


def per_sequence(
    ends: list[int], q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, sm_scale: float
) -> tuple[Tensor, Tensor]:
    """PyTorch's own flash attention on one sequence after another; the heads of a group are its queries."""
    output, lse = _empty(q)
    keys, values = k_cache[:, 0].index_select(0, kv_indices), v_cache[:, 0].index_select(0, kv_indices)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    if q.is_cuda:
        kernel = torch.ops.aten._scaled_dot_product_flash_attention
    for row, (start, end) in enumerate(pairwise(ends)):
        k, v = keys[None, start:end].transpose(1, 2), values[None, start:end].transpose(1, 2)
        found = kernel(q[row].view(1, KV_HEADS, SHARE, DIM), k, v, scale=sm_scale)
        output[row], lse[row] = found[0].reshape(HEADS, DIM), found[1].reshape(HEADS) * LOG2_E
    return output, lse


def plan_padded(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor
) -> tuple[Tensor, Tensor]:
    """For each sequence its pages up to the longest one's length, and where they are to be left out."""
    sizes = kv_indptr.diff()
    places = torch.arange(int(sizes.max()), device=q.device) + kv_indptr[:-1, None]
    left_out = places >= kv_indptr[1:, None]
    return kv_indices[places.clamp_(max=len(kv_indices) - 1)], left_out


def padded(
    plan: tuple[Tensor, Tensor], q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
    sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """All sequences as one batch, as long as the longest of them; logits in float32."""
    pages, left_out = plan
    batch = len(q)
    keys = k_cache[pages, 0].permute(0, 2, 3, 1).flatten(0, 1)
    values = v_cache[pages, 0].transpose(1, 2).flatten(0, 1)
    logits = _product(q.view(batch * KV_HEADS, SHARE, DIM), keys).view(batch, HEADS, -1)
    logits.mul_(sm_scale).masked_fill_(left_out[:, None], float("-inf"))
    top = logits.amax(-1, keepdim=True)
    weights = (logits - top).exp_()
    total = weights.sum(-1, keepdim=True)
    summed = _product(weights.to(q.dtype).view(batch * KV_HEADS, SHARE, -1), values).view(batch, HEADS, DIM)
    return (summed / total).to(q.dtype), (top + total.log()).squeeze(-1) * LOG2_E


def _product(left: Tensor, right: Tensor) -> Tensor:
    """A batched product with a float32 result."""
    return torch.bmm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()


def plan_varlen(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor
) -> tuple[Tensor, int]:
    """Offsets of the queries, which are the heads of each group, and the greatest length."""
    starts = torch.arange(0, SHARE * len(q) + 1, SHARE, dtype=torch.int32, device=q.device)
    return starts, int(kv_indptr.diff().max())


def varlen(
    plan: tuple[Tensor, int], q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
    sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The pages gathered, then PyTorch's flash attention for sequences of unequal lengths in one launch."""
    starts, longest = plan
    batch = len(q)
    keys, values = k_cache[:, 0].index_select(0, kv_indices), v_cache[:, 0].index_select(0, kv_indices)
    queries = q.view(batch, KV_HEADS, SHARE, DIM).transpose(1, 2).reshape(batch * SHARE, KV_HEADS, DIM)
    found = torch.ops.aten._flash_attention_forward(
        queries, keys, values, starts, kv_indptr, SHARE, longest, 0.0, False, False, scale=sm_scale
    )
    output = found[0].view(batch, SHARE, KV_HEADS, DIM).transpose(1, 2).reshape(batch, HEADS, DIM)
    return output, found[1].view(KV_HEADS, batch, SHARE).transpose(0, 1).reshape(batch, HEADS) * LOG2_E


@functools.cache
def _wrapper(device: torch.device) -> Any:
    import flashinfer

    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
    return flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "NHD", use_tensor_cores=True)


def plan_flashinfer_decode(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor, sm_scale: float
) -> Any:
    """FlashInfer's schedule of this page table, for its tensor-core kernel."""
    wrapper = _wrapper(q.device)
    last = torch.ones(len(q), dtype=torch.int32, device=q.device)
    wrapper.plan(kv_indptr, kv_indices, last, HEADS, KV_HEADS, DIM, 1, q_data_type=q.dtype, kv_data_type=q.dtype,
                 sm_scale=sm_scale)  # fmt: skip
    return wrapper


def flashinfer_decode(
    wrapper: Any, q: Tensor, k_cache: Tensor, v_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor
) -> tuple[Tensor, Tensor]:
    """FlashInfer's BatchDecodeWithPagedKVCacheWrapper."""
    output, lse = wrapper.run(q, (k_cache, v_cache), return_lse=True)
    return output, lse
