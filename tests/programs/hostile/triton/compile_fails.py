# expect: compile_error|crashed
# The kernel does not compile: shapes that cannot be broadcast. Python sees nothing wrong before the first call.
# Fools a harness that takes a failure at the first call for a failure of its own.
import triton
import triton.language as tl


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr):
    value = tl.load(x + tl.arange(0, BLOCK)) + tl.arange(0, 2 * BLOCK)
    tl.store(y + tl.arange(0, BLOCK), value)


def softmax(x, y, rows, columns):
    _row[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
