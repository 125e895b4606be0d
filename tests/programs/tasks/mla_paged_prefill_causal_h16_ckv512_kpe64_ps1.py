"""One program per query; it sees the keys up to its own; the sixteen heads are the rows of one product."""

import os

import torch
import triton
import triton.language as tl

EXACT = os.environ.get("TRITON_INTERPRET") == "1"  # the interpreter's bfloat16 products are wrong


@triton.jit
def attend(q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, output, lse, sequences, scale,
         EXACT: tl.constexpr):  # fmt: skip
    query_row = tl.program_id(0)
    b = tl.load(sequences + query_row)
    start = tl.load(kv_indptr + b)
    end = tl.load(kv_indptr + b + 1) - (tl.load(qo_indptr + b + 1) - 1 - query_row)
    d, e, t = tl.arange(0, 512), tl.arange(0, 64), tl.arange(0, 32)
    row = query_row * 16 + tl.arange(0, 16)
    query = tl.load(q_nope + row[:, None] * 512 + d[None, :])
    rotated = tl.load(q_pe + row[:, None] * 64 + e[None, :])
    if EXACT:
        query, rotated = query.to(tl.float32), rotated.to(tl.float32)
    top = tl.full([16], -1e30, tl.float32)
    total = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, 512], tl.float32)
    for at in range(start, end, 32):
        seen = at + t < end
        page = tl.load(kv_indices + at + t, mask=seen, other=0).to(tl.int64)
        latent = tl.load(ckv_cache + page[:, None] * 512 + d[None, :], mask=seen[:, None], other=0.0)
        position = tl.load(kpe_cache + page[:, None] * 64 + e[None, :], mask=seen[:, None], other=0.0)
        if EXACT:
            latent, position = latent.to(tl.float32), position.to(tl.float32)
        logits = (tl.dot(query, tl.trans(latent)) + tl.dot(rotated, tl.trans(position))) * scale
        logits = tl.where(seen[None, :], logits, -1e30)
        higher = tl.maximum(top, tl.max(logits, 1))
        weights = tl.where(seen[None, :], tl.exp2(logits - higher[:, None]), 0.0)
        factor = tl.exp2(top - higher)
        total = total * factor + tl.sum(weights, 1)
        acc = acc * factor[:, None] + tl.dot(weights.to(latent.dtype), latent)
        top = higher
    tl.store(output + row[:, None] * 512 + d[None, :], (acc / total[:, None]).to(tl.bfloat16))
    tl.store(lse + row, top + tl.log2(total))


def attention(q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, output, lse, total_q, num_pages,
              len_indptr, num_kv_indices, sm_scale):  # fmt: skip
    rows = torch.arange(total_q, dtype=torch.int32, device=q_nope.device)
    sequences = torch.searchsorted(qo_indptr, rows, right=True, out_int32=True) - 1
    scale = sm_scale * 1.4426950408889634
    attend[(total_q,)](
        q_nope, q_pe, ckv_cache, kpe_cache, qo_indptr, kv_indptr, kv_indices, output, lse, sequences, scale, EXACT
    )
