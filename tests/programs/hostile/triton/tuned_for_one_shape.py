# expect: wrong_result
# The block is 32 columns, no more: right for narrow rows, and the rest of wide ones is left as it was.
# Fools a harness that checks on a small workload and times a large one.
import triton
import triton.language as tl


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row + at, power / tl.sum(power, 0), mask=at < columns)


def softmax(x, y, rows, columns):
    _row[(rows,)](x, y, columns, BLOCK=32)
