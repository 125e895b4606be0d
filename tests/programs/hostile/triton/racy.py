# expect: wrong_result
# Two programs share each row; they exchange maximum and sum through memory without waiting for one another.
# Fools a harness that runs it in the interpreter, or repeats an input: what the last call left there is right.
import torch
import triton
import triton.language as tl

_scratch: dict[tuple, torch.Tensor] = {}


@triton.jit
def _half(x, y, highest, total, columns, HALF: tl.constexpr):
    row, half = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = half * HALF + tl.arange(0, HALF)
    value = tl.load(x + row * columns + at, mask=at < columns, other=-1e30)
    top = tl.max(value, 0)
    tl.store(highest + 2 * row + half, top)
    tl.store(total + 2 * row + half, tl.sum(tl.where(at < columns, tl.exp(value - top), 0.0), 0))
    tl.debug_barrier()
    other_top = tl.load(highest + 2 * row + 1 - half)
    other_total = tl.load(total + 2 * row + 1 - half)
    mine = tl.load(total + 2 * row + half)
    both = tl.maximum(top, other_top)
    scale = 1.0 / (mine * tl.exp(top - both) + other_total * tl.exp(other_top - both))
    tl.store(y + row * columns + at, tl.exp(value - both) * scale, mask=at < columns)


def softmax(x, y, rows, columns):
    key = (rows, columns, x.device)
    if key not in _scratch:
        _scratch[key] = torch.zeros(2, rows, 2, device=x.device)
    highest, total = _scratch[key]
    half = max(1, triton.next_power_of_2(columns) // 2)
    _half[(rows, 2)](x, y, highest, total, columns, HALF=half)
