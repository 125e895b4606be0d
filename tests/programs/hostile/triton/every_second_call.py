# expect: wrong_result
# The kernel is launched in every second call only.
# Fools a harness that warms up before each timed call on the same tensors.
import itertools

import triton
import triton.language as tl

_count = itertools.count()


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row + at, power / tl.sum(power, 0), mask=at < columns)


def softmax(x, y, rows, columns):
    if next(_count) % 2 == 0:
        _row[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
