"""Whether outputs are as good as those of the reference. Standard library and torch only."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Tolerance:
    """|got - expected| <= atol + rtol * |expected|, for a share of the elements at least.

    With row_norm also ||got - expected|| <= row_norm * ||expected|| over each row, which is what lies along the last
    axis: where all values of a row are near atol, only this tells a right one from zeros.
    """

    atol: float
    rtol: float
    matched: float = 1.0
    row_norm: float | None = None

    def doubled(self) -> Tolerance:
        """For outputs that are compared with another approximation instead of the reference."""
        row_norm = None if self.row_norm is None else 2 * self.row_norm
        return Tolerance(2 * self.atol, 2 * self.rtol, self.matched, row_norm)

    def __str__(self) -> str:
        share = "" if self.matched == 1.0 else f" for {self.matched:.3g} of the elements"
        rows = "" if self.row_norm is None else f", ||got - expected|| <= {self.row_norm:g} * ||expected|| in each row"
        return f"|got - expected| <= {self.atol:g} + {self.rtol:g} * |expected|{share}{rows}"


def close(got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether enough elements are within the tolerance; NaN is close to NaN only, infinity to itself."""
    if got.dtype.is_floating_point and got.numel() and tolerance.row_norm is None:
        a, b = (got, expected) if got.dtype == expected.dtype == torch.float32 else (got.double(), expected.double())
        excess = torch.sub(a, b).abs_().sub_(b.abs(), alpha=tolerance.rtol)
        if float(excess.max()) <= tolerance.atol:
            return True
    return _few(wrong(got, expected, tolerance), got, tolerance)


def wrong(got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    """Which elements are not within the tolerance, of a row too far away all that differ."""
    a, b = got.double(), expected.double()
    finite = b.isfinite()
    same = (a == b) | (a.isnan() & b.isnan())
    outside = ~((((a - b).abs() <= tolerance.atol + tolerance.rtol * b.abs()) & finite) | same)
    if tolerance.row_norm is not None and a.dim():
        away = torch.where(finite, a - b, 0.0).norm(dim=-1, keepdim=True)
        outside |= ~(away <= tolerance.row_norm * torch.where(finite, b, 0.0).norm(dim=-1, keepdim=True)) & ~same
    return outside


def _few(outside: torch.Tensor, got: torch.Tensor, tolerance: Tolerance) -> bool:
    """Whether so few elements are wrong that the tolerance allows it; what is not finite is never allowed."""
    count = int(outside.sum())
    if not count or count > (1 - tolerance.matched) * outside.numel():
        return not count
    return bool(got.double()[outside].isfinite().all())
