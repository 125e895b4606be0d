# One local expert after the other on the tokens that chose it, in bf16 on a GPU and in fp32 on a processor.
import torch
import torch.nn.functional as F


def _route(logits, bias, factor):
    scores = torch.sigmoid(logits)
    choice = (scores + bias.float()).view(len(logits), 8, -1)
    strength = choice.topk(2, -1).values.sum(-1)
    weakest = strength.topk(4, -1).values[:, -1:]
    experts = choice.masked_fill((strength < weakest)[:, :, None], -torch.inf).flatten(1).topk(8, -1).indices
    shares = scores.gather(1, experts)
    return experts, shares * (factor / shares.sum(-1, keepdim=True))


def _widened(values, scale, dtype):
    rows, columns = values.shape
    return (values.float().view(rows // 128, 128, -1, 128) * scale[:, None, :, None]).view(rows, columns).to(dtype)


def moe(
    routing_logits, routing_bias, hidden_states, hidden_states_scale, gemm1_weights, gemm1_weights_scale,
    gemm2_weights, gemm2_weights_scale, output, seq_len, num_experts, num_local_experts, hidden_size,
    intermediate_size, gemm1_out_size, local_expert_offset, routed_scaling_factor,
):  # fmt: skip
    dtype = torch.bfloat16 if output.is_cuda else torch.float32
    experts, shares = _route(routing_logits, routing_bias, routed_scaling_factor)
    states = hidden_states.float().view(seq_len, -1, 128) * hidden_states_scale.t()[:, :, None]
    states = states.view(seq_len, -1).to(dtype)
    total = torch.zeros(seq_len, hidden_size, device=output.device)
    for local in range(num_local_experts):
        tokens, places = torch.where(experts == local_expert_offset + local)
        if len(tokens):
            first = _widened(gemm1_weights[local], gemm1_weights_scale[local], dtype)
            second = _widened(gemm2_weights[local], gemm2_weights_scale[local], dtype)
            linear, gate = (states[tokens] @ first.t()).split(intermediate_size, -1)
            result = (linear * F.silu(gate)) @ second.t()
            total.index_add_(0, tokens, result.float() * shares[tokens, places][:, None])
    output.copy_(total)
