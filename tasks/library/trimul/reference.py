"""Inputs, oracle and PyTorch formulations of the outgoing triangle multiplicative update."""

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-5
STRIP = 2**25
"""Elements of x that the oracle holds in float64 at a time."""


def make_inputs(generator: torch.Generator, bs: int, n: int, dim: int, hidden: int, workload: str) -> dict[str, Tensor]:
    """Standard normal values; x is Cauchy (scale 2) where the workload's name says so, and half of the mask zero.

    The input projections are divided by sqrt(hidden), the output projection by sqrt(dim).
    """
    words = workload.split("_")

    def normal(*shape: int, over: float = 1.0) -> Tensor:
        return torch.empty(shape, device=generator.device).normal_(0.0, over**-0.5, generator=generator)

    mask = torch.ones(bs, n, n, device=generator.device)
    x = torch.empty(bs, n, n, dim, device=generator.device)
    return {
        "x": x.cauchy_(0.0, 2.0, generator=generator) if "cauchy" in words else x.normal_(generator=generator),
        "mask": mask.random_(0, 2, generator=generator) if "masked" in words else mask,
        "norm_weight": normal(dim),
        "norm_bias": normal(dim),
        "left_proj": normal(hidden, dim, over=hidden),
        "right_proj": normal(hidden, dim, over=hidden),
        "left_gate": normal(hidden, dim, over=hidden),
        "right_gate": normal(hidden, dim, over=hidden),
        "out_gate": normal(hidden, dim, over=hidden),
        "out_norm_weight": normal(hidden),
        "out_norm_bias": normal(hidden),
        "out_proj": normal(dim, hidden, over=dim),
    }


def reference(
    x: Tensor, mask: Tensor, norm_weight: Tensor, norm_bias: Tensor, left_proj: Tensor, right_proj: Tensor,
    left_gate: Tensor, right_gate: Tensor, out_gate: Tensor, out_norm_weight: Tensor, out_norm_bias: Tensor,
    out_proj: Tensor, strip: int = STRIP,
) -> Tensor:  # fmt: skip
    """In float64, rounded once; `strip` elements of x at a time, since it can have 800 million."""
    _, n, _, dim = x.shape
    height = max(1, strip // (n * dim))
    rows = [slice(at, at + height) for at in range(0, n, height)]

    def normed(values: Tensor) -> Tensor:
        return F.layer_norm(values.double(), (dim,), norm_weight.double(), norm_bias.double(), EPS)

    def side(image: Tensor, seen: Tensor, projection: Tensor, gate: Tensor) -> Tensor:
        """[hidden, n, n]"""
        sides = x.new_empty(projection.shape[0], n, n, dtype=torch.float64)
        for part in rows:
            values = normed(image[part])
            gated = _linear64(values, projection) * torch.sigmoid(_linear64(values, gate))
            sides[:, part] = (gated * seen[part, :, None]).permute(2, 0, 1)
        return sides

    out = torch.empty_like(x)
    for image, seen, result in zip(x, mask, out, strict=True):
        left = side(image, seen, left_proj, left_gate)
        product = left @ side(image, seen, right_proj, right_gate).transpose(1, 2)
        del left
        for part in rows:
            pairs = product[:, part].permute(1, 2, 0)
            pairs = F.layer_norm(pairs, pairs.shape[-1:], out_norm_weight.double(), out_norm_bias.double(), EPS)
            result[part] = _linear64(pairs * torch.sigmoid(_linear64(normed(image[part]), out_gate)), out_proj)
    return out


def _linear64(values: Tensor, weight: Tensor) -> Tensor:
    return values @ weight.double().t()


def _formula(
    half: bool, x: Tensor, mask: Tensor, norm_weight: Tensor, norm_bias: Tensor, left_proj: Tensor, right_proj: Tensor,
    left_gate: Tensor, right_gate: Tensor, out_gate: Tensor, out_norm_weight: Tensor, out_norm_bias: Tensor,
    out_proj: Tensor,
) -> Tensor:  # fmt: skip
    """As it is written; both normalisations in fp32, everything else in fp32 or in fp16."""
    dtype = torch.float16 if half else torch.float32

    def linear(values: Tensor, weight: Tensor) -> Tensor:
        return F.linear(values, weight.to(dtype))

    normed = F.layer_norm(x, x.shape[-1:], norm_weight, norm_bias, EPS).to(dtype)
    seen = mask[..., None].to(dtype)
    left = linear(normed, left_proj) * seen * torch.sigmoid(linear(normed, left_gate))
    right = linear(normed, right_proj) * seen * torch.sigmoid(linear(normed, right_gate))
    pairs = torch.einsum("bikd,bjkd->bijd", left, right).float()
    pairs = F.layer_norm(pairs, pairs.shape[-1:], out_norm_weight, out_norm_bias, EPS).to(dtype)
    return linear(pairs * torch.sigmoid(linear(normed, out_gate)), out_proj).float()


def single(**tensors: Tensor) -> Tensor:
    """fp32 throughout, eager."""
    return _formula(False, **tensors)


def half(**tensors: Tensor) -> Tensor:
    """fp16 between the normalisations, eager."""
    return _formula(True, **tensors)


half_compiled = torch.compile(half, dynamic=False)


def half_joined(
    x: Tensor, mask: Tensor, norm_weight: Tensor, norm_bias: Tensor, left_proj: Tensor, right_proj: Tensor,
    left_gate: Tensor, right_gate: Tensor, out_gate: Tensor, out_norm_weight: Tensor, out_norm_bias: Tensor,
    out_proj: Tensor,
) -> Tensor:  # fmt: skip
    """fp16: one matmul for the five input projections, and compiled kernels for what lies around the three matmuls."""
    bs, n, _, dim = x.shape
    weights = torch.cat([left_proj, left_gate, right_proj, right_gate, out_gate]).half()
    projected = _normed(x, norm_weight, norm_bias).view(-1, dim) @ weights.t()
    left, right = _sides(projected.view(bs, n, n, 5, -1), mask)
    pairs = torch.bmm(left, right.transpose(1, 2))
    gated = _gated(pairs.view(bs, -1, n, n), projected.view(bs, n, n, 5, -1), out_norm_weight, out_norm_bias)
    return _widened(gated.view(bs * n * n, -1), out_proj.half().t()).view(x.shape)


def _to_normed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, EPS).half()


def _to_sides(projected: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Each [bs * hidden, n, n], from [bs, n, n, 5, hidden]."""
    seen = mask[..., None].half()
    left = projected[..., 0, :] * torch.sigmoid(projected[..., 1, :]) * seen
    right = projected[..., 2, :] * torch.sigmoid(projected[..., 3, :]) * seen
    turned = [side.permute(0, 3, 1, 2).contiguous().flatten(0, 1) for side in (left, right)]
    return turned[0], turned[1]


def _to_gated(pairs: Tensor, projected: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[bs, n, n, hidden], from products [bs, hidden, n, n]."""
    values = pairs.permute(0, 2, 3, 1).float()
    values = F.layer_norm(values, values.shape[-1:], weight, bias, EPS)
    return (values * torch.sigmoid(projected[..., 4, :].float())).half()


_normed, _sides, _gated = (torch.compile(part, dynamic=False) for part in (_to_normed, _to_sides, _to_gated))


def _widened(left: Tensor, right: Tensor) -> Tensor:
    """The product of two fp16 matrices in fp32."""
    return torch.mm(left, right, out_dtype=torch.float32) if left.is_cuda else left.float() @ right.float()
