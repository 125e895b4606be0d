"""Inputs, oracle and PyTorch formulations of the int8 GEMM with block scales."""

import torch
from torch import Tensor

BLOCK = 128


def make_inputs(generator: torch.Generator, m: int, n: int, k: int) -> dict[str, Tensor]:
    """Uniform values in [-127, 127] and scales in [0.001, 0.02)."""
    return {
        "a": _values(m, k, generator),
        "a_scale": _scales(m, k // BLOCK, generator),
        "b": _values(n, k, generator),
        "b_scale": _scales(n // BLOCK, k // BLOCK, generator),
    }


def _values(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    words = torch.empty(rows, columns // 8, dtype=torch.int64, device=generator.device)
    words.random_(-(2**63), None, generator=generator)  # eight values at a time
    return words.view(torch.int8).clamp_(min=-127)


def _scales(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    return torch.empty(rows, columns, device=generator.device).uniform_(0.001, 0.02, generator=generator)


def reference(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """Exact block sums, scaled and added in float64.

    Block sums stay below 2^24, so float32 holds them on a CPU; on a GPU the products are float64 as well, so that no
    setting of TF32 can touch them.
    """
    exact = torch.float64 if a.is_cuda else torch.float32
    out = torch.zeros(a.shape[0], b.shape[0], dtype=torch.float64, device=a.device)
    columns = b_scale.repeat_interleave(BLOCK, 0).double()
    left, right = a.to(exact), b.to(exact)
    for block in range(a_scale.shape[1]):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        sums = left[:, part] @ right[:, part].t()
        out.addcmul_(sums * a_scale[:, block, None].double(), columns[:, block])
    return out.float()


def dequantised(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """Both operands in fp32, one matmul."""
    m, k, n = a.shape[0], a.shape[1], b.shape[0]
    left = a.view(m, -1, BLOCK) * a_scale[:, :, None]
    right = b.view(n // BLOCK, BLOCK, -1, BLOCK) * b_scale[:, None, :, None]
    return left.view(m, k) @ right.view(n, k).t()


compiled = torch.compile(dequantised, dynamic=False)


def folded(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """All scales on A, a copy of it for each block of columns: B is only converted. Batched matmul."""
    left, right = _fold(a, a_scale, b, b_scale)
    return torch.bmm(left, right.transpose(1, 2)).transpose(0, 1).reshape(a.shape[0], b.shape[0])


def folded_turned(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """`folded` with B as the left operand: faster where A has few rows."""
    left, right = _fold(a, a_scale, b, b_scale)
    return torch.bmm(right, left.transpose(1, 2)).view(b.shape[0], a.shape[0]).t().contiguous()


def _fold(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> tuple[Tensor, Tensor]:
    m, k, panels = a.shape[0], a.shape[1], b_scale.shape[0]
    left = a.view(1, m, -1, BLOCK) * (a_scale * b_scale[:, None])[:, :, :, None]
    return left.view(panels, m, k), b.float().view(panels, BLOCK, k)


def int_mm(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """torch._int_mm block by block, scaled and added at once."""
    out = torch.zeros(a.shape[0], b.shape[0], device=a.device)
    columns = b_scale.t().repeat_interleave(BLOCK, 1)
    for block in range(a_scale.shape[1]):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        sums = torch._int_mm(a[:, part], b[:, part].t())
        out.addcmul_(sums * a_scale[:, block, None], columns[block])
    return out


def int_mm_compiled(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """torch._int_mm into one stack of block sums, which one compiled kernel scales and adds."""
    blocks = a_scale.shape[1]
    sums = torch.empty(blocks, a.shape[0], b.shape[0], dtype=torch.int32, device=a.device)
    for block in range(blocks):
        part = slice(block * BLOCK, (block + 1) * BLOCK)
        torch._int_mm(a[:, part], b[:, part].t(), out=sums[block])
    return _combine(sums, a_scale, b_scale)


def _scaled_sum(sums: Tensor, a_scale: Tensor, b_scale: Tensor) -> Tensor:
    blocks, m, n = sums.shape
    scale = a_scale.t()[:, :, None, None] * b_scale.t()[:, None, :, None]
    return (sums.view(blocks, m, -1, BLOCK) * scale).sum(0).view(m, n)


_combine = torch.compile(_scaled_sum, dynamic=False)


def _halves(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Both operands dequantised, each as an fp16 value and the fp16 of what that leaves out, side by side along k."""
    m, k, n = a.shape[0], a.shape[1], b.shape[0]
    left = (a.view(m, -1, BLOCK) * a_scale[:, :, None]).view(m, k)
    right = (b.view(n // BLOCK, BLOCK, -1, BLOCK) * b_scale[:, None, :, None]).view(n, k)
    high_a, high_b = left.half(), right.half()
    low_a, low_b = (left - high_a).half(), (right - high_b).half()
    return torch.cat([high_a, high_a, low_a], 1), torch.cat([high_b, low_b, high_b], 1)


def split_half(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """Three fp16 tensor-core products in one matmul: one alone has an error of 0.01, outside the tolerance."""
    left, right = _compiled_halves(a, a_scale, b, b_scale)
    return torch.mm(left, right.t(), out_dtype=torch.float32)


_compiled_halves = torch.compile(_halves, dynamic=False)


def half_blocks(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor) -> Tensor:
    """fp16 products of the integers, which are exact, one batch entry per block; scaled and added by one kernel."""
    blocks = a_scale.shape[1]
    left = a.view(a.shape[0], blocks, BLOCK).transpose(0, 1).half()
    right = b.view(b.shape[0], blocks, BLOCK).permute(1, 2, 0).half()
    return _combine(torch.bmm(left, right, out_dtype=torch.float32), a_scale, b_scale)
