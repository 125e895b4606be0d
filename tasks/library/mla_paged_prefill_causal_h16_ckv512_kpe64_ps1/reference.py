"""Inputs, oracle and formulations of causal multi-head latent attention prefill over a paged cache."""

import functools
import math
import runpy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

paging = runpy.run_path(str(Path(__file__).with_name("paging.py")))
HEADS, CKV, KPE = 16, 512, 64
LOG2_E = math.log2(math.e)
WORKSPACE = 128 << 20
LOGITS = 1 << 26
"""Logits that are held at a time, in elements."""


def make_inputs(
    generator: torch.Generator, total_q: int, num_pages: int, len_indptr: int, num_kv_indices: int, sm_scale: float
) -> dict[str, Tensor]:
    """Normal queries and cache; every sequence has as many keys as queries at least. A page table of paging.py."""
    queries = paging["lengths"](generator, len_indptr - 1, total_q)
    keys = queries + paging["lengths"](generator, len_indptr - 1, num_kv_indices - total_q, least=0)
    indptr, indices = paging["page_table"](generator, keys, num_kv_indices, num_pages)
    return {
        "q_nope": _normal((total_q, HEADS, CKV), generator),
        "q_pe": _normal((total_q, HEADS, KPE), generator),
        "ckv_cache": _normal((num_pages, 1, CKV), generator),
        "kpe_cache": _normal((num_pages, 1, KPE), generator),
        "qo_indptr": paging["offsets"](queries, generator.device),
        "kv_indptr": indptr,
        "kv_indices": indices,
    }


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.bfloat16)


def _blocks(qo_indptr: Tensor, kv_indptr: Tensor) -> list[tuple[int, int, int, int, int]]:
    """Blocks of queries of one sequence with few enough logits: first and last query, first and last key of the block,
    and how many of these keys its first query sees.
    """
    blocks = []
    queries, keys = qo_indptr.tolist(), kv_indptr.tolist()
    for row in range(len(queries) - 1):
        before = keys[row + 1] - keys[row] - (queries[row + 1] - queries[row])
        size = max(1, LOGITS // (HEADS * (keys[row + 1] - keys[row])))
        for start in range(queries[row], queries[row + 1], size):
            end = min(start + size, queries[row + 1])
            seen = before + start - queries[row] + 1
            blocks.append((start, end, keys[row], keys[row] + seen + end - start - 1, seen))
    return blocks


def _mask_(logits: Tensor, seen: int) -> Tensor:
    """Logits [queries, heads, keys] in place: query i sees the first `seen` + i keys."""
    limits = torch.arange(seen, seen + len(logits), device=logits.device)
    hidden = torch.arange(logits.shape[-1], device=logits.device) >= limits[:, None]
    return logits.masked_fill_(hidden[:, None], float("-inf"))


def reference(
    q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, qo_indptr: Tensor, kv_indptr: Tensor,
    kv_indices: Tensor, sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """In float32, block by block of queries."""
    output, lse = _empty(q_nope)
    for start, end, first, last, seen in _blocks(qo_indptr, kv_indptr):
        pages = kv_indices[first:last]
        latent = ckv_cache[pages, 0].float()
        keys = torch.cat([latent, kpe_cache[pages, 0].float()], -1)
        queries = torch.cat([q_nope[start:end], q_pe[start:end]], -1).float().mul_(sm_scale)
        logits = _mask_((queries.flatten(0, 1) @ keys.t()).view(end - start, HEADS, -1), seen)
        lse[start:end] = logits.logsumexp(-1) * LOG2_E
        output[start:end] = (logits.softmax(-1).flatten(0, 1) @ latent).view(-1, HEADS, CKV).bfloat16()
    return output, lse


def _empty(q_nope: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q_nope), torch.empty(q_nope.shape[:2], dtype=torch.float32, device=q_nope.device)


def plan_blocks(
    q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, qo_indptr: Tensor, kv_indptr: Tensor,
    kv_indices: Tensor,
) -> list[tuple[int, int, int, int, int]]:  # fmt: skip
    """The blocks of queries."""
    return _blocks(qo_indptr, kv_indptr)


def blocks(
    plan: list[tuple[int, int, int, int, int]], q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor,
    qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor, sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """All pages gathered at once, then two bfloat16 products for each block of queries; logits in float32."""
    return _in_blocks(plan, _softmax, (q_nope, q_pe, ckv_cache, kpe_cache, kv_indices), sm_scale)


plan_compiled = plan_blocks


def compiled(
    plan: list[tuple[int, int, int, int, int]], q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor,
    qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor, sm_scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `blocks`, with mask, softmax and log-sum-exp in compiled kernels."""
    return _in_blocks(plan, _compiled_softmax, (q_nope, q_pe, ckv_cache, kpe_cache, kv_indices), sm_scale)


def _in_blocks(plan: Any, softmax: Any, tensors: tuple[Tensor, ...], sm_scale: float) -> tuple[Tensor, Tensor]:
    q_nope, q_pe, ckv_cache, kpe_cache, kv_indices = tensors
    output, lse = _empty(q_nope)
    latent, rotated = ckv_cache[:, 0].index_select(0, kv_indices), kpe_cache[:, 0].index_select(0, kv_indices)
    queries, keys = torch.cat([q_nope, q_pe], -1), torch.cat([latent, rotated], -1)
    for start, end, first, last, seen in plan:
        logits = _product(queries[start:end].flatten(0, 1), keys[first:last].t()).view(end - start, HEADS, -1)
        visible = torch.arange(seen, seen + end - start, device=logits.device)
        weights, lse[start:end] = softmax(logits, visible, sm_scale)
        torch.mm(weights.flatten(0, 1), latent[first:last], out=output[start:end].view(-1, CKV))
    return output, lse


def _softmax(logits: Tensor, visible: Tensor, sm_scale: float) -> tuple[Tensor, Tensor]:
    """Weights in bfloat16 and log-sum-exps of logits [queries, heads, keys]; a query sees so many keys."""
    hidden = torch.arange(logits.shape[-1], device=logits.device) >= visible[:, None]
    masked = (logits * sm_scale).masked_fill(hidden[:, None], float("-inf"))
    return masked.softmax(-1).bfloat16(), masked.logsumexp(-1) * LOG2_E


_compiled_softmax = torch.compile(_softmax, dynamic=True)


def _product(left: Tensor, right: Tensor) -> Tensor:
    """A product with a float32 result."""
    return torch.mm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()


@functools.cache
def _wrapper(device: torch.device) -> Any:
    import flashinfer

    workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
    backend = "fa3" if torch.cuda.get_device_capability(device)[0] == 9 else "fa2"
    return flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace, backend=backend)


def plan_flashinfer_mla(
    q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, qo_indptr: Tensor, kv_indptr: Tensor,
    kv_indices: Tensor, sm_scale: float,
) -> Any:  # fmt: skip
    """FlashInfer's schedule of this page table: fa3 on Hopper, fa2 elsewhere."""
    wrapper = _wrapper(q_nope.device)
    dtype = q_nope.dtype
    wrapper.plan(qo_indptr, kv_indptr, kv_indices, kv_indptr.diff(), HEADS, CKV, KPE, 1, True, sm_scale, dtype, dtype)
    return wrapper


def flashinfer_mla(
    wrapper: Any, q_nope: Tensor, q_pe: Tensor, ckv_cache: Tensor, kpe_cache: Tensor, qo_indptr: Tensor,
    kv_indptr: Tensor, kv_indices: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """FlashInfer's BatchMLAPagedAttentionWrapper."""
    output, lse = wrapper.run(q_nope, q_pe, ckv_cache, kpe_cache, return_lse=True)
    return output, lse
