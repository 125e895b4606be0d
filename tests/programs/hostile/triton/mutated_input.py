# expect: rejected:mutated_input
# It stores the exponentials over x and reads them back; the result is right.
# Fools a harness that hands out a copy of the input, or computes its reference before the call.
import triton
import triton.language as tl


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(x + row + at, power, mask=at < columns)
    tl.store(y + row + at, power / tl.sum(power, 0), mask=at < columns)


def softmax(x, y, rows, columns):
    _row[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
