# A kernel per side normalises, projects and gates; cuBLAS sums over k; a last kernel normalises, gates and projects.
import torch
import triton
import triton.language as tl


@triton.jit
def _project(
    x, mask, gain, shift, weight, gate, result, rows, plane, dim,
    BM: tl.constexpr, H: tl.constexpr, BK: tl.constexpr, SIDE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    inside = row < rows
    h = tl.arange(0, H)
    total = tl.zeros([BM], tl.float32)
    for start in range(0, dim, BK):
        at = start + tl.arange(0, BK)
        total += tl.sum(
            tl.load(x + row[:, None] * dim + at[None, :], mask=inside[:, None] & (at < dim)[None, :], other=0.0), 1
        )
    mean = total / dim
    total = tl.zeros([BM], tl.float32)
    for start in range(0, dim, BK):
        at = start + tl.arange(0, BK)
        value = tl.load(x + row[:, None] * dim + at[None, :], mask=inside[:, None] & (at < dim)[None, :], other=0.0)
        centred = tl.where((at < dim)[None, :], value - mean[:, None], 0.0)
        total += tl.sum(centred * centred, 1)
    steep = 1.0 / tl.sqrt(total / dim + 1e-5)
    gates = tl.zeros([BM, H], tl.float32)
    values = tl.zeros([BM, H], tl.float32)
    for start in range(0, dim, BK):
        at = start + tl.arange(0, BK)
        value = tl.load(x + row[:, None] * dim + at[None, :], mask=inside[:, None] & (at < dim)[None, :], other=0.0)
        scale = tl.load(gain + at, mask=at < dim, other=0.0)
        offset = tl.load(shift + at, mask=at < dim, other=0.0)
        normed = ((value - mean[:, None]) * steep[:, None] * scale[None, :] + offset[None, :]).to(tl.float16)
        panel = h[None, :] * dim + at[:, None]
        gates = tl.dot(normed, tl.load(gate + panel, mask=at[:, None] < dim, other=0.0).to(tl.float16), gates)
        if SIDE:
            values = tl.dot(normed, tl.load(weight + panel, mask=at[:, None] < dim, other=0.0).to(tl.float16), values)
    gates = tl.sigmoid(gates)
    if SIDE:
        gated = values * gates * tl.load(mask + row, mask=inside, other=0.0)[:, None]
        place = (row // plane * H * plane + row % plane)[:, None] + h[None, :].to(tl.int64) * plane
    else:
        gated = gates
        place = row[:, None] * H + h[None, :]
    tl.store(result + place, gated.to(tl.float16), mask=inside[:, None])


@triton.jit
def _finish(
    pairs, gate, gain, shift, weight, out, rows, plane, dim,
    BM: tl.constexpr, H: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    inside = row < rows
    h = tl.arange(0, H)
    place = (row // plane * H * plane + row % plane)[:, None] + h[None, :].to(tl.int64) * plane
    value = tl.load(pairs + place, mask=inside[:, None], other=0.0).to(tl.float32)
    centred = value - (tl.sum(value, 1) / H)[:, None]
    steep = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / H + 1e-5)
    normed = centred * steep[:, None] * tl.load(gain + h)[None, :] + tl.load(shift + h)[None, :]
    gated = (normed * tl.load(gate + row[:, None] * H + h[None, :], mask=inside[:, None], other=0.0)).to(tl.float16)
    for start in range(0, dim, BK):
        at = start + tl.arange(0, BK)
        panel = tl.load(weight + at[None, :] * H + h[:, None], mask=at[None, :] < dim, other=0.0).to(tl.float16)
        tl.store(
            out + row[:, None] * dim + at[None, :], tl.dot(gated, panel), mask=inside[:, None] & (at < dim)[None, :]
        )


def trimul(
    x, mask, norm_weight, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_weight,
    out_norm_bias, out_proj, out, bs, n, dim, hidden,
):  # fmt: skip
    rows, plane = bs * n * n, n * n
    left, right = torch.empty(2, bs * hidden, n, n, dtype=torch.float16, device=x.device).unbind()
    gate = torch.empty(rows, hidden, dtype=torch.float16, device=x.device)
    grid = (triton.cdiv(rows, 64),)
    for weight, by, result, side in (
        (left_proj, left_gate, left, True), (right_proj, right_gate, right, True), (out_gate, out_gate, gate, False),
    ):  # fmt: skip
        _project[grid](
            x, mask, norm_weight, norm_bias, weight, by, result, rows, plane, dim,
            BM=64, H=hidden, BK=32, SIDE=side, num_warps=4,
        )  # fmt: skip
    pairs = torch.bmm(left, right.transpose(1, 2))
    _finish[grid](
        pairs, gate, out_norm_weight, out_norm_bias, out_proj, out, rows, plane, dim,
        BM=64, H=hidden, BK=32, num_warps=4,
    )  # fmt: skip
