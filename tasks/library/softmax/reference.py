"""Inputs, oracle and PyTorch formulations of the softmax of each row."""

import torch
from torch import Tensor

SPREAD = 3.0
SHIFT = 85.0


def make_inputs(generator: torch.Generator, rows: int, columns: int) -> dict[str, Tensor]:
    """Normal values with a standard deviation of 3 around a centre per row, uniform in [-85, 85)."""
    x = torch.empty(rows, columns, device=generator.device).normal_(0.0, SPREAD, generator=generator)
    return {"x": x.add_(torch.empty(rows, 1, device=x.device).uniform_(-SHIFT, SHIFT, generator=generator))}


def reference(x: Tensor) -> Tensor:
    """In float64, rounded once."""
    shifted = x.double()
    shifted -= shifted.amax(-1, keepdim=True)
    weights = shifted.exp_()
    return weights.div_(weights.sum(-1, keepdim=True)).float()


def library(x: Tensor) -> Tensor:
    """PyTorch's own kernel."""
    return torch.softmax(x, -1)


compiled = torch.compile(library, dynamic=False)


def eager(x: Tensor) -> Tensor:
    """The formula as it is written."""
    weights = torch.exp(x - x.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True)


def _through_log(x: Tensor) -> Tensor:
    """exp(x - log of the sum): the division becomes a subtraction."""
    return torch.exp(x - torch.logsumexp(x, -1, keepdim=True))


compiled_log = torch.compile(_through_log, dynamic=False)
