"""One program per sequence and group of heads; the eight heads are rows of one product, padded to sixteen."""

import os

import torch
import triton
import triton.language as tl

EXACT = os.environ.get("TRITON_INTERPRET") == "1"  # the interpreter's bfloat16 products are wrong


@triton.jit
def part(q, k_cache, v_cache, kv_indptr, kv_indices, sums, tops, totals, scale, splits, EXACT: tl.constexpr):
    b, group, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start, end = tl.load(kv_indptr + b), tl.load(kv_indptr + b + 1)
    size = tl.cdiv(tl.cdiv(end - start, splits), 64) * 64
    start = start + split * size
    end = tl.minimum(start + size, end)
    rows, d, t = tl.arange(0, 16), tl.arange(0, 128), tl.arange(0, 64)
    head = b * 32 + group * 8 + rows
    real = rows < 8
    query = tl.load(q + head[:, None] * 128 + d[None, :], mask=real[:, None], other=0.0)
    if EXACT:
        query = query.to(tl.float32)
    top = tl.full([16], -1e30, tl.float32)
    total = tl.zeros([16], tl.float32)
    acc = tl.zeros([16, 128], tl.float32)
    for at in range(start, end, 64):
        seen = at + t < end
        page = tl.load(kv_indices + at + t, mask=seen, other=0).to(tl.int64)
        place = (page * 4 + group)[:, None] * 128 + d[None, :]
        key = tl.load(k_cache + place, mask=seen[:, None], other=0.0)
        value = tl.load(v_cache + place, mask=seen[:, None], other=0.0)
        if EXACT:
            key, value = key.to(tl.float32), value.to(tl.float32)
        logits = tl.where(seen[None, :], tl.dot(query, tl.trans(key)) * scale, -1e30)
        higher = tl.maximum(top, tl.max(logits, 1))
        weights = tl.where(seen[None, :], tl.exp2(logits - higher[:, None]), 0.0)
        factor = tl.exp2(top - higher)
        total = total * factor + tl.sum(weights, 1)
        acc = acc * factor[:, None] + tl.dot(weights.to(value.dtype), value)
        top = higher
    place = head * splits + split
    tl.store(sums + place[:, None] * 128 + d[None, :], acc, mask=real[:, None])
    tl.store(tops + place, top, mask=real)
    tl.store(totals + place, total, mask=real)


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


def attention(q, k_cache, v_cache, kv_indptr, kv_indices, output, lse, batch_size, num_pages, len_indptr,
              num_kv_indices, sm_scale):  # fmt: skip
    splits = max(1, min(64, -(-num_kv_indices // 64), -(-512 // batch_size)))
    sums = torch.empty(batch_size * 32 * splits, 128, dtype=torch.float32, device=q.device)
    tops, totals = torch.empty_like(sums[:, 0]), torch.empty_like(sums[:, 0])
    scale = sm_scale * 1.4426950408889634
    part[(batch_size, 4, splits)](q, k_cache, v_cache, kv_indptr, kv_indices, sums, tops, totals, scale, splits, EXACT)
    merge[(batch_size * 32,)](sums, tops, totals, output, lse, splits, 128)
