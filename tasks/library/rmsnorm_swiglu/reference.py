"""Inputs, oracle and PyTorch formulations of SwiGLU + residual + RMSNorm."""

import torch
from torch import Tensor
from torch.nn.functional import rms_norm as torch_rms_norm
from torch.nn.functional import silu

EPS = 1e-6
OUTLIER_EVERY = 61
OUTLIER = 64.0


def make_inputs(generator: torch.Generator, tokens: int, hidden: int) -> dict[str, Tensor]:
    """Uniform in [-3, 3); like a model's outliers, one channel in 61 has gates 64 times as large (and smaller ups)."""
    gate, up, residual = (_uniform((tokens, hidden), generator) for _ in range(3))
    gate[:, ::OUTLIER_EVERY] *= OUTLIER
    up[:, ::OUTLIER_EVERY] /= OUTLIER
    weight = torch.empty(hidden, device=generator.device).uniform_(0.5, 1.5, generator=generator)
    return {"gate": gate, "up": up, "residual": residual, "weight": weight}


def _uniform(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    count = shape[0] * shape[1]
    words = torch.empty((count + 3) // 4, dtype=torch.int64, device=generator.device)
    words.random_(-(2**63), None, generator=generator)  # four values at a time
    return words.view(torch.int16)[:count].view(shape) * (3.0 / 2**15)


def reference(gate: Tensor, up: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """In float64, rounded once."""
    h = silu(gate.double()).mul_(up).add_(residual)
    scale = torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS)
    return h.mul_(scale).mul_(weight).float()


def eager(gate: Tensor, up: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """The formula as it is written."""
    h = silu(gate) * up + residual
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + EPS) * weight


def rms_norm(gate: Tensor, up: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """With PyTorch's own RMSNorm."""
    return torch_rms_norm(silu(gate) * up + residual, weight.shape, weight, EPS)


def in_place(gate: Tensor, up: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    """One buffer and the fewest passes over it: multiply-add in one, the sum of squares as a vector norm."""
    h = silu(gate)
    torch.addcmul(residual, h, up, out=h)
    norm = torch.linalg.vector_norm(h, dim=-1, keepdim=True)
    return h.mul_(torch.rsqrt_(norm.square_().div_(h.shape[-1]).add_(EPS))).mul_(weight)


compiled = torch.compile(eager, dynamic=False)

compiled_in_place = torch.compile(in_place, dynamic=False)
