# expect: rejected:out_of_bounds_write
# The store of the last row has no mask: it reaches 64 elements past the end of y. The result is right.
# Fools a harness that only compares y: the neighbour in memory is damaged.
import triton
import triton.language as tl


@triton.jit
def _row(x, y, rows, columns, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    row = program.to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    beyond = tl.where(program == rows - 1, 64, 0)
    tl.store(y + row + at, power / tl.sum(power, 0), mask=at < columns + beyond)


def softmax(x, y, rows, columns):
    _row[(rows,)](x, y, rows, columns, BLOCK=triton.next_power_of_2(columns + 64))
