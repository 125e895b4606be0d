# Rows split over programs in two kernels, with partial maxima and sums in scratch memory that stays.
import torch
import triton
import triton.language as tl

_BLOCK = 2048
_scratch: dict[tuple, torch.Tensor] = {}


@triton.jit
def _partial(x, highest, total, columns, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    top = tl.max(value, 0)
    tl.store(highest + row * parts + part, top)
    tl.store(total + row * parts + part, tl.sum(tl.exp(value - top), 0))


@triton.jit
def _finish(x, y, highest, total, columns, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    each = tl.arange(0, PARTS)
    tops = tl.load(highest + row * parts + each, mask=each < parts, other=-float("inf"))
    top = tl.max(tops, 0)
    sums = tl.load(total + row * parts + each, mask=each < parts, other=0.0)
    scale = 1.0 / tl.sum(sums * tl.exp(tops - top), 0)
    at = part * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(y + row * columns + at, tl.exp(value - top) * scale, mask=at < columns)


def softmax(x, y, rows, columns):
    parts = triton.cdiv(columns, _BLOCK)
    key = (rows, columns, x.device)
    if key not in _scratch:
        _scratch[key] = torch.empty(2, rows, parts, device=x.device)
    highest, total = _scratch[key]
    _partial[(rows, parts)](x, highest, total, columns, parts, BLOCK=_BLOCK)
    held = triton.next_power_of_2(parts)
    _finish[(rows, parts)](x, y, highest, total, columns, parts, BLOCK=_BLOCK, PARTS=held)
