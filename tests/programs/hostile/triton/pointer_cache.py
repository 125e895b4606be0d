# expect: wrong_result
# The kernel runs once for each address of x; afterwards the remembered result is copied.
# Fools a harness that refills the same input tensor, or that repeats calls on one input.
import torch
import triton
import triton.language as tl

_results: dict[tuple[int, int, int], torch.Tensor] = {}


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row + at, power / tl.sum(power, 0), mask=at < columns)


def softmax(x, y, rows, columns):
    key = (x.data_ptr(), rows, columns)
    if key not in _results:
        _results[key] = torch.empty_like(x)
        _row[(rows,)](x, _results[key], columns, BLOCK=triton.next_power_of_2(columns))
    y.copy_(_results[key])
