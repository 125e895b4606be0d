# expect: wrong_result
# The exponential is Schraudolph's: the bits of a float from one multiplication, off by up to 3 %.
# Fools a harness with a tolerance on the mean error, or on absolute error alone (softmax outputs are small).
import triton
import triton.language as tl


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row + at, mask=at < columns, other=-1e30)
    shifted = tl.maximum(value - tl.max(value, 0), -80.0)
    power = (shifted * 12102203.16 + 1064866805.0).to(tl.int32).to(tl.float32, bitcast=True)
    power = tl.where(at < columns, power, 0.0)
    tl.store(y + row + at, power / tl.sum(power, 0), mask=at < columns)


def softmax(x, y, rows, columns):
    _row[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
