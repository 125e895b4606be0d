# expect: wrong_result
# The row is rounded to half precision when it is loaded, and so are its exponentials.
# Fools a harness with a tolerance of 1e-2, KernelBench's default for years.
import triton
import triton.language as tl


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row + at, mask=at < columns, other=-60000.0).to(tl.float16)
    power = tl.exp((value - tl.max(value, 0)).to(tl.float32)).to(tl.float16).to(tl.float32)
    tl.store(y + row + at, power / tl.sum(power, 0), mask=at < columns)


def softmax(x, y, rows, columns):
    _row[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
