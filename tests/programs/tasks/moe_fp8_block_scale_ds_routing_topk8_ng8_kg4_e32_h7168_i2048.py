# Pairs of token and expert sorted by expert in PyTorch; two grouped products in Triton on tiles of one expert's rows.
import torch
import triton
import triton.language as tl


def _route(logits, bias, factor):
    scores = torch.sigmoid(logits)
    choice = (scores + bias.float()).view(len(logits), 8, -1)
    strength = choice.topk(2, -1).values.sum(-1)
    weakest = strength.topk(4, -1).values[:, -1:]
    experts = choice.masked_fill((strength < weakest)[:, :, None], -torch.inf).flatten(1).topk(8, -1).indices
    shares = scores.gather(1, experts)
    return experts, shares * (factor / shares.sum(-1, keepdim=True))


@triton.jit
def _first(
    states, states_scale, weights, scales, tokens, tile_expert, tile_start, tile_end, result, seq_len, hidden, inner,
    BM: tl.constexpr,
):  # fmt: skip
    expert = tl.load(tile_expert + tl.program_id(0)).to(tl.int64)
    pair = tl.load(tile_start + tl.program_id(0)) + tl.arange(0, BM)
    inside = pair < tl.load(tile_end + tl.program_id(0))
    token = tl.load(tokens + pair, mask=inside, other=0)
    column = tl.program_id(1) * 128 + tl.arange(0, 128)
    k = tl.arange(0, 128)
    panel = weights + expert * 2 * inner * hidden + column[None, :] * hidden + k[:, None]
    blocks = hidden // 128
    factor = scales + (expert * 2 * (inner // 128) + tl.program_id(1)) * blocks
    linear = tl.zeros([BM, 128], tl.float32)
    gate = tl.zeros([BM, 128], tl.float32)
    for block in range(0, blocks):
        value = tl.load(states + token[:, None] * hidden + block * 128 + k[None, :]).to(tl.float16)
        scale = tl.load(states_scale + block * seq_len + token, mask=inside, other=0.0)
        sums = tl.dot(value, tl.load(panel + block * 128).to(tl.float16))
        linear += sums * (scale * tl.load(factor + block))[:, None]
        sums = tl.dot(value, tl.load(panel + inner * hidden + block * 128).to(tl.float16))
        gate += sums * (scale * tl.load(factor + (inner // 128) * blocks + block))[:, None]
    gated = linear * gate * tl.sigmoid(gate)
    place = pair[:, None].to(tl.int64) * inner + column[None, :]
    tl.store(result + place, gated.to(tl.float16), mask=inside[:, None])


@triton.jit
def _second(
    gated, weights, scales, tokens, shares, tile_expert, tile_start, tile_end, total, hidden, inner,
    BM: tl.constexpr,
):  # fmt: skip
    expert = tl.load(tile_expert + tl.program_id(0)).to(tl.int64)
    pair = tl.load(tile_start + tl.program_id(0)) + tl.arange(0, BM)
    inside = pair < tl.load(tile_end + tl.program_id(0))
    column = tl.program_id(1) * 128 + tl.arange(0, 128)
    k = tl.arange(0, 128)
    panel = weights + expert * hidden * inner + column[None, :] * inner + k[:, None]
    factor = scales + (expert * (hidden // 128) + tl.program_id(1)) * (inner // 128)
    sums = tl.zeros([BM, 128], tl.float32)
    for block in range(0, inner // 128):
        place = pair[:, None].to(tl.int64) * inner + block * 128 + k[None, :]
        value = tl.load(gated + place, mask=inside[:, None], other=0.0)
        sums += tl.dot(value, tl.load(panel + block * 128).to(tl.float16)) * tl.load(factor + block)
    sums *= tl.load(shares + pair, mask=inside, other=0.0)[:, None]
    token = tl.load(tokens + pair, mask=inside, other=0)
    tl.atomic_add(total + token[:, None] * hidden + column[None, :], sums, mask=inside[:, None])


def _tiles(sizes, height, device):
    """Expert, first pair and end of the expert's pairs, for each tile."""
    tiles, start = [], 0
    for expert, size in enumerate(sizes):
        tiles += [(expert, at, start + size) for at in range(start, start + size, height)]
        start += size
    return torch.tensor(tiles, dtype=torch.int32, device=device).view(-1, 3).t().contiguous()


def moe(
    routing_logits, routing_bias, hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale,
    gemm2_weights, gemm2_weights_scale, output, seq_len, num_experts, num_local_experts, hidden_size,
    intermediate_size, gemm1_out_size, local_expert_offset, routed_scaling_factor,
):  # fmt: skip
    experts, shares = _route(routing_logits, routing_bias, routed_scaling_factor)
    local = (experts - local_expert_offset).flatten()
    local = torch.where((local < 0) | (local >= num_local_experts), num_local_experts, local)
    sizes = torch.bincount(local, minlength=num_local_experts + 1)[:-1].tolist()
    order = torch.argsort(local, stable=True)[: sum(sizes)]
    tokens, weights = order // 8, shares.flatten()[order]
    height = 16 if seq_len <= 128 else 64
    tiles = _tiles(sizes, height, output.device)
    total = torch.zeros(seq_len, hidden_size, device=output.device)
    count = tiles.shape[1]
    if count:
        gated = torch.empty(len(order), intermediate_size, dtype=torch.float16, device=output.device)
        _first[(count, intermediate_size // 128)](
            hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale, tokens, *tiles, gated, seq_len,
            hidden_size, intermediate_size, BM=height, num_warps=8,
        )  # fmt: skip
        _second[(count, hidden_size // 128)](
            gated, gemm2_weights, gemm2_weights_scale, tokens, weights, *tiles, total, hidden_size,
            intermediate_size, BM=height, num_warps=8,
        )  # fmt: skip
    output.copy_(total)
