"""One program per sequence and part of its keys; the sixteen heads are the rows of one product."""

import os

import torch
import triton
import triton.language as tl

EXACT = os.environ.get("TRITON_INTERPRET") == "1"  # the interpreter's bfloat16 products are wrong


@triton.jit
def part(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sums, tops, totals, scale, splits,
         EXACT: tl.constexpr):  # fmt: skip
    b, split = tl.program_id(0), tl.program_id(1)
    start, end = tl.load(kv_indptr + b), tl.load(kv_indptr + b + 1)
    size = tl.cdiv(tl.cdiv(end - start, splits), 32) * 32
    start = start + split * size
    end = tl.minimum(start + size, end)
    d, e, t = tl.arange(0, 512), tl.arange(0, 64), tl.arange(0, 32)
    row = b * 16 + tl.arange(0, 16)
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
    place = row * splits + split
    tl.store(sums + place[:, None] * 512 + d[None, :], acc)
    tl.store(tops + place, top)
    tl.store(totals + place, total)


@triton.jit
def merge(sums, tops, totals, output, lse, splits, WIDTH: tl.constexpr):
    row, d = tl.program_id(0), tl.arange(0, WIDTH)
    top = -1e30
    for split in range(splits):
        top = tl.maximum(top, tl.load(tops + row * splits + split))
    total = 0.0
    acc = tl.zeros([WIDTH], tl.float32)
    for split in range(splits):
        place = row * splits + split
        factor = tl.exp2(tl.load(tops + place) - top)
        total += factor * tl.load(totals + place)
        acc += factor * tl.load(sums + place * WIDTH + d)
    tl.store(output + row * WIDTH + d, (acc / total).to(tl.bfloat16))
    tl.store(lse + row, top + tl.log2(total))


def attention(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, output, lse, batch_size, num_pages, len_indptr,
              num_kv_indices, sm_scale):  # fmt: skip
    splits = max(1, min(64, -(-num_kv_indices // 32), -(-512 // batch_size)))
    sums = torch.empty(batch_size * 16 * splits, 512, dtype=torch.float32, device=q_nope.device)
    tops, totals = torch.empty_like(sums[:, 0]), torch.empty_like(sums[:, 0])
    scale = sm_scale * 1.4426950408889634
    part[(batch_size, splits)](
        q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sums, tops, totals, scale, splits, EXACT
    )
    merge[(batch_size * 16,)](sums, tops, totals, output, lse, splits, 512)
