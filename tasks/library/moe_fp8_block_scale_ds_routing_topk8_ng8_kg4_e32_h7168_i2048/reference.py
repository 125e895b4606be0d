"""Inputs, oracle and PyTorch formulations of one rank's experts of a DeepSeek-V3 layer, in block-scaled fp8."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 128
GROUPS, KEPT_GROUPS, TOP = 8, 4, 8
LARGEST = 448.0
"""The largest float8_e4m3fn."""
DEVIATION = LARGEST / 4
"""Standard deviation of the fp8 values, as if the largest of a block had been scaled to 448."""
SKEW = 0.7
"""Standard deviation of the experts' popularity, in units of a token's own logits."""
GATE_SCALE, DOWN_SCALE = 3.0, 8.0
"""Standard deviation of what the first product gives, and about that of an expert's output over its input's."""

Tensors = dict[str, Tensor]


def make_inputs(
    generator: torch.Generator, seq_len: int, num_experts: int, num_local_experts: int, hidden_size: int,
    intermediate_size: int, gemm1_out_size: int, local_expert_offset: int, routed_scaling_factor: float,
) -> Tensors:  # fmt: skip
    """Clipped normal fp8 values with uniform block scales; normal logits on top of a popularity of each expert.

    The first token prefers the local experts, so that a single token gives work too. Outputs are some tens.
    """
    device = generator.device

    def normal(*shape: int, deviation: float = 1.0) -> Tensor:
        return torch.empty(shape, device=device).normal_(0.0, deviation, generator=generator)

    def scales(*shape: int, size: float) -> Tensor:
        return torch.empty(shape, device=device).uniform_(0.5 * size, 1.5 * size, generator=generator)

    def weights(rows: int, columns: int) -> Tensor:
        made = torch.empty(num_local_experts, rows, columns, dtype=torch.float8_e4m3fn, device=device)
        for expert in made:
            expert.copy_(_fp8_values(rows, columns, generator))
        return made

    logits = normal(seq_len, num_experts) + normal(num_experts, deviation=SKEW)
    logits[0, local_expert_offset : local_expert_offset + num_local_experts] += 3.0
    blocks, inner = hidden_size // BLOCK, intermediate_size // BLOCK
    first = GATE_SCALE * hidden_size**-0.5 / DEVIATION
    second = DOWN_SCALE * intermediate_size**-0.5 / DEVIATION
    return {
        "routing_logits": logits,
        "routing_bias": normal(num_experts, deviation=0.2).bfloat16(),
        "hidden_states": _fp8_values(seq_len, hidden_size, generator),
        "hidden_states_scale": scales(blocks, seq_len, size=1 / DEVIATION),
        "gemm1_weights": weights(gemm1_out_size, hidden_size),
        "gemm1_weights_scale": scales(num_local_experts, gemm1_out_size // BLOCK, blocks, size=first),
        "gemm2_weights": weights(hidden_size, intermediate_size),
        "gemm2_weights_scale": scales(num_local_experts, blocks, inner, size=second),
    }


def _fp8_values(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    values = torch.empty(rows, columns, dtype=torch.bfloat16, device=generator.device)
    return values.normal_(0.0, DEVIATION, generator=generator).clamp_(-LARGEST, LARGEST).to(torch.float8_e4m3fn)


def route(logits: Tensor, bias: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """The experts of each token and their shares of its output, both [seq_len, 8]."""
    scores = torch.sigmoid(logits)
    groups = (scores + bias.float()).view(len(logits), GROUPS, -1)
    kept = groups.topk(2, -1).values.sum(-1).topk(KEPT_GROUPS, -1).indices
    closed = torch.ones(groups.shape[:2], dtype=torch.bool, device=logits.device).scatter_(1, kept, False)
    experts = groups.masked_fill(closed[:, :, None], float("-inf")).flatten(1).topk(TOP, -1).indices
    shares = scores.gather(1, experts)
    return experts, factor * shares / shares.sum(-1, keepdim=True)


def reference(
    routing_logits: Tensor, routing_bias: Tensor, hidden_states: Tensor, hidden_states_scale: Tensor,
    gemm1_weights: Tensor, gemm1_weights_scale: Tensor, gemm2_weights: Tensor, gemm2_weights_scale: Tensor,
    local_expert_offset: int, routed_scaling_factor: float,
) -> Tensor:  # fmt: skip
    """In float32, rounded to bfloat16 at the end: one local expert at a time, its weights dequantised."""
    experts, shares = route(routing_logits, routing_bias, routed_scaling_factor)
    total = torch.zeros(hidden_states.shape, device=hidden_states.device)
    for local in range(len(gemm1_weights)):
        tokens, places = torch.nonzero(experts == local_expert_offset + local, as_tuple=True)
        if not len(tokens):
            continue
        values = _rows(hidden_states, hidden_states_scale, tokens)
        linear, gate = (values @ _dequantised(gemm1_weights[local], gemm1_weights_scale[local]).t()).chunk(2, -1)
        result = (F.silu(gate) * linear) @ _dequantised(gemm2_weights[local], gemm2_weights_scale[local]).t()
        total.index_add_(0, tokens, result * shares[tokens, places, None])
    return total.bfloat16()


def _dequantised(values: Tensor, scale: Tensor) -> Tensor:
    """fp32, of fp8 values [..., rows, columns] with a scale per 128 x 128 block."""
    blocks = values.float().unflatten(-1, (-1, BLOCK)).unflatten(-3, (-1, BLOCK))
    return (blocks * scale[..., :, None, :, None]).view(values.shape)


def _rows(hidden_states: Tensor, scale: Tensor, tokens: Tensor) -> Tensor:
    """The hidden states of some tokens in fp32."""
    blocks = _picked(hidden_states, tokens).float().unflatten(-1, (-1, BLOCK))
    return (blocks * scale.t()[tokens][:, :, None]).flatten(1)


def _picked(hidden_states: Tensor, tokens: Tensor) -> Tensor:
    return hidden_states.view(torch.uint8)[tokens].view(hidden_states.dtype)


def _assigned(tensors: Tensors, offset: int, factor: float) -> tuple[Tensor, Tensor, list[int]]:
    """Token and share of each pair of a token and a local expert, by expert, and how many pairs each expert has."""
    experts, shares = route(tensors["routing_logits"], tensors["routing_bias"], factor)
    count = len(tensors["gemm1_weights"])
    local = (experts - offset).flatten()
    local = torch.where((local < 0) | (local >= count), count, local)
    sizes: list[int] = torch.bincount(local, minlength=count + 1)[:count].tolist()
    order = torch.argsort(local, stable=True)[: sum(sizes)]
    return order // TOP, shares.flatten()[order], sizes


def _summed(tensors: Tensors, tokens: Tensor, shares: Tensor, results: Tensor) -> Tensor:
    """The results of all pairs, weighted and added up by token."""
    total = torch.zeros(tensors["hidden_states"].shape, device=results.device)
    return total.index_add_(0, tokens, results.float() * shares[:, None]).bfloat16()


def _activated(product: Tensor) -> Tensor:
    linear, gate = product.float().chunk(2, -1)
    return F.silu(gate) * linear


def _dense(values: Tensor, scale: Tensor) -> Tensor:
    """As the matmuls take it: bf16 on a GPU, fp32 on a processor."""
    return _dequantised(values, scale).to(_dtype(values))


def _dtype(tensor: Tensor) -> torch.dtype:
    return torch.bfloat16 if tensor.is_cuda else torch.float32


_compiled_dense = torch.compile(_dense, dynamic=False)


def _by_expert(tensors: Tensors, offset: int, factor: float, dense: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    tokens, shares, sizes = _assigned(tensors, offset, factor)
    rows = _rows(tensors["hidden_states"], tensors["hidden_states_scale"], tokens).to(_dtype(tokens))
    results = torch.empty_like(rows)
    for local, (part, result) in enumerate(zip(rows.split(sizes), results.split(sizes), strict=True)):
        if len(part):
            first = dense(tensors["gemm1_weights"][local], tensors["gemm1_weights_scale"][local])
            second = dense(tensors["gemm2_weights"][local], tensors["gemm2_weights_scale"][local])
            torch.mm(_activated(part @ first.t()).to(part.dtype), second.t(), out=result)
    return _summed(tensors, tokens, shares, results)


def by_expert(local_expert_offset: int, routed_scaling_factor: float, **tensors: Tensor) -> Tensor:
    """Matmuls in bf16 (on a GPU) or fp32, on the weights of the experts that have tokens; dequantised eagerly."""
    return _by_expert(tensors, local_expert_offset, routed_scaling_factor, _dense)


def by_expert_compiled(local_expert_offset: int, routed_scaling_factor: float, **tensors: Tensor) -> Tensor:
    """As `by_expert`; one compiled kernel dequantises a weight."""
    return _by_expert(tensors, local_expert_offset, routed_scaling_factor, _compiled_dense)


def grouped(local_expert_offset: int, routed_scaling_factor: float, **tensors: Tensor) -> Tensor:
    """All weights dequantised by compiled kernels, and two grouped matmuls over all experts, in bf16 on a GPU."""
    tokens, shares, sizes = _assigned(tensors, local_expert_offset, routed_scaling_factor)
    ends = torch.tensor(sizes, device=tokens.device).cumsum(0, dtype=torch.int32)
    rows = _rows(tensors["hidden_states"], tensors["hidden_states_scale"], tokens).to(_dtype(tokens))
    first = _compiled_dense(tensors["gemm1_weights"], tensors["gemm1_weights_scale"])
    product = F.grouped_mm(rows, first.transpose(1, 2), offs=ends)
    second = _compiled_dense(tensors["gemm2_weights"], tensors["gemm2_weights_scale"])
    results = F.grouped_mm(_activated(product).to(rows.dtype), second.transpose(1, 2), offs=ends)
    return _summed(tensors, tokens, shares, results)


def block_scaled(local_expert_offset: int, routed_scaling_factor: float, **tensors: Tensor) -> Tensor:
    """fp8 matmuls with block scales, expert by expert: no weight is dequantised, activations are quantised again."""
    tokens, shares, sizes = _assigned(tensors, local_expert_offset, routed_scaling_factor)
    results = []
    for local, part in enumerate(tokens.split(sizes)):
        if len(part):
            padded = F.pad(part, (0, -len(part) % 16))  # with token 0, to a number of rows that the library takes
            values, scale = _picked(tensors["hidden_states"], padded), tensors["hidden_states_scale"][:, padded].t()
            weight, weight_scale = tensors["gemm1_weights"][local], tensors["gemm1_weights_scale"][local]
            values, scale = _quantised(_activated(_scaled_mm(values, scale, weight, weight_scale)))
            weight, weight_scale = tensors["gemm2_weights"][local], tensors["gemm2_weights_scale"][local]
            results.append(_scaled_mm(values, scale, weight, weight_scale)[: len(part)])
    joined = torch.cat(results) if results else shares.new_zeros(0, tensors["hidden_states"].shape[1])
    return _summed(tensors, tokens, shares, joined)


def _quantised(values: Tensor) -> tuple[Tensor, Tensor]:
    """fp8 with a scale per row and 128 columns; scales are stored by column, as the matmul wants them."""
    blocks = values.unflatten(-1, (-1, BLOCK))
    scale = blocks.abs().amax(-1).clamp_min(1e-12) / LARGEST
    narrow = (blocks / scale[:, :, None]).clamp_(-LARGEST, LARGEST).to(torch.float8_e4m3fn)
    return narrow.flatten(1), scale.t().contiguous().t()


def _scaled_mm(values: Tensor, scale: Tensor, weight: Tensor, weight_scale: Tensor) -> Tensor:
    """bf16 [rows, out], of fp8 values [rows, in] and a weight [out, in]; the library call is for GPUs only."""
    if not values.is_cuda:
        rows = (values.float().unflatten(-1, (-1, BLOCK)) * scale[:, :, None]).flatten(1)
        return (rows @ _dequantised(weight, weight_scale).t()).bfloat16()
    kinds = F.ScalingType
    return F.scaled_mm(
        values, weight.t(), scale, kinds.BlockWise1x128, weight_scale.t(), kinds.BlockWise128x128,
        output_dtype=torch.bfloat16,
    )  # fmt: skip
