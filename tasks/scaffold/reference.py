"""Inputs, the reference, and the PyTorch formulations that programs have to beat."""

import torch


def make_inputs(generator: torch.Generator, rows: int, columns: int) -> dict[str, torch.Tensor]:
    """New random inputs by name; called with the dimensions of a workload, so it should be quick."""
    device = generator.device
    return {
        "x": torch.randn(rows, columns, generator=generator, device=device),
        "y": torch.randn(rows, columns, generator=generator, device=device),
    }


def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The right answer: a tensor, or a tuple of them in the order of [[outputs]]."""
    difference = x.double() - y.double()
    return (difference * difference).sum(dim=1).float()


def eager(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The formula as one writes it."""
    return (x - y).square().sum(dim=1)


def cdist(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The same through the batched distance kernel."""
    return torch.cdist(x.unsqueeze(1), y.unsqueeze(1)).square().flatten()
