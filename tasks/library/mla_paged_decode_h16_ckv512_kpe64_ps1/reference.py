"""Inputs, oracle and formulations of multi-head latent attention, one query per sequence, over a paged cache."""

import functools
import math
import runpy
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

paging = runpy.run_path(str(Path(__file__).with_name("paging.py")))
HEADS, CKV, KPE = 16, 512, 64
LOG2_E = math.log2(math.e)
WORKSPACE = 128 << 20


def make_inputs(
    generator: torch.Generator, batch_size: int, num_pages: int, len_indptr: int, num_kv_indices: int, sm_scale: float
) -> dict[str, Tensor]:
    """Normal queries and cache; a page table as paging.py makes it."""
    indptr, indices = paging["page_table"](generator, batch_size, num_kv_indices, num_pages)
    return {
        "q_nope": _normal((batch_size, HEADS, CKV), generator),
        "q_pe": _normal((batch_size, HEADS, KPE), generator),
        "ckv_cache": _normal((num_pages, 1, CKV), generator),
        "kpe_cache": _normal((num_pages, 1, KPE), generator),
        "kv_indptr": indptr,
        "kv_indices": indices,
    }


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.bfloat16)


def reference(
    q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
    sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """In float32, sequence by sequence; both parts of a logit come from one product."""
    output, lse = _empty(q_nope)
    queries = torch.cat([q_nope, q_pe], -1).float() * sm_scale
    ends = kv_indptr.tolist()
    for row, (start, end) in enumerate(pairwise(ends)):
        pages = kv_indices[start:end]
        latent = ckv_cache[pages, 0].float()
        logits = queries[row] @ torch.cat([latent, kpe_cache[pages, 0].float()], -1).t()
        output[row] = (logits.softmax(-1) @ latent).bfloat16()
        lse[row] = logits.logsumexp(-1) * LOG2_E
    return output, lse


def _empty(q_nope: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q_nope), torch.empty(q_nope.shape[:2], dtype=torch.float32, device=q_nope.device)


def plan_per_sequence(
    q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor
) -> list[int]:
    """The offsets on the host."""
    return kv_indptr.tolist()


def per_sequence(
    ends: list[int], q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, kv_indptr: Tensor,
    kv_indices: Tensor, sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """All pages gathered at once, then two products for one sequence after another; logits in float32."""
    output, lse = _empty(q_nope)
    latent, rotated = ckv_cache[:, 0].index_select(0, kv_indices), kpe_cache[:, 0].index_select(0, kv_indices)
    queries, keys = torch.cat([q_nope, q_pe], -1), torch.cat([latent, rotated], -1)
    for row, (start, end) in enumerate(pairwise(ends)):
        logits = _product(queries[row], keys[start:end].t()).mul_(sm_scale)
        torch.mm(logits.softmax(-1).to(latent.dtype), latent[start:end], out=output[row])
        lse[row] = logits.logsumexp(-1) * LOG2_E
    return output, lse


def plan_padded(
    q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor
) -> tuple[Tensor, Tensor]:
    """For each sequence its pages up to the longest one's length, and where they are to be left out."""
    sizes = kv_indptr.diff()
    places = torch.arange(int(sizes.max()), device=q_nope.device) + kv_indptr[:-1, None]
    left_out = places >= kv_indptr[1:, None]
    return kv_indices[places.clamp_(max=len(kv_indices) - 1)], left_out


def padded(
    plan: tuple[Tensor, Tensor], q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, kv_indptr: Tensor,
    kv_indices: Tensor, sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """All sequences as one batch, as long as the longest of them; logits in float32."""
    pages, left_out = plan
    latent = ckv_cache[pages, 0]
    logits = _product(q_nope, latent.transpose(1, 2)).add_(_product(q_pe, kpe_cache[pages, 0].transpose(1, 2)))
    logits.mul_(sm_scale).masked_fill_(left_out[:, None], float("-inf"))
    top = logits.amax(-1, keepdim=True)
    weights = (logits - top).exp_()
    total = weights.sum(-1, keepdim=True)
    summed = _product(weights.to(latent.dtype), latent)
    return (summed / total).to(latent.dtype), (top + total.log()).squeeze(-1) * LOG2_E


def _product(left: Tensor, right: Tensor) -> Tensor:
    """A product, batched or not, with a float32 result."""
    if not left.is_cuda:
        return left.float() @ right.float()
    return (torch.bmm if left.dim() == 3 else torch.mm)(left, right, out_dtype=torch.float32)


@functools.cache
def _wrapper(device: torch.device) -> Any:
    import flashinfer

    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
    backend = "fa3" if torch.cuda.get_device_capability(device)[0] == 9 else "fa2"
    return flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace, backend=backend)


def plan_flashinfer_mla(
    q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
    sm_scale: float,
) -> Any:  # fmt: skip
    """FlashInfer's schedule of this page table: fa3 on Hopper, fa2 elsewhere."""
    wrapper = _wrapper(q_nope.device)
    starts = torch.arange(len(q_nope) + 1, dtype=torch.int32, device=q_nope.device)
    dtype = q_nope.dtype
    wrapper.plan(starts, kv_indptr, kv_indices, kv_indptr.diff(), HEADS, CKV, KPE, 1, False, sm_scale, dtype, dtype)
    return wrapper


def flashinfer_mla(
    wrapper: Any, q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, kv_indptr: Tensor,
    kv_indices: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """FlashInfer's BatchMLAPagedAttentionWrapper."""
    output, lse = wrapper.run(q_nope, q_pe, ckv_cache, kpe_cache, return_lse=True)
    return output, lse
