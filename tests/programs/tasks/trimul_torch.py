# One joined projection, a batched matmul and a last projection: fp16 on a GPU, fp32 on a processor.
import torch
import torch.nn.functional as F


def trimul(
    x, mask, norm_weight, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_weight,
    out_norm_bias, out_proj, out, bs, n, dim, hidden,
):  # fmt: skip
    dtype = torch.float16 if x.is_cuda else torch.float32
    normed = F.layer_norm(x, (dim,), norm_weight, norm_bias).to(dtype)
    weights = torch.cat([left_proj, left_gate, right_proj, right_gate, out_gate]).to(dtype)
    left, gate_left, right, gate_right, gate = (normed @ weights.t()).split(hidden, -1)
    del normed
    seen = mask[..., None].to(dtype)
    left = (left * torch.sigmoid(gate_left) * seen).permute(0, 3, 1, 2).contiguous()
    right = (right * torch.sigmoid(gate_right) * seen).permute(0, 3, 1, 2).contiguous()
    pairs = (left @ right.transpose(-1, -2)).permute(0, 2, 3, 1).float()
    pairs = F.layer_norm(pairs, (hidden,), out_norm_weight, out_norm_bias).to(dtype)
    out.copy_((pairs * torch.sigmoid(gate)) @ out_proj.to(dtype).t())
