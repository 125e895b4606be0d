# expect: wrong_result
# Among its configurations is one that leaves out most of the columns; the autotuner picks it, as it is the fastest.
# Fools a harness that checks before tuning, or with a first call that another configuration still served.
import triton
import triton.language as tl

_CONFIGURATIONS = [triton.Config({"SKIP": skip}, num_warps=4) for skip in (1, 16)]


@triton.autotune(configs=_CONFIGURATIONS, key=["columns"])
@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr, SKIP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    inside = at < columns // SKIP
    value = tl.load(x + row + at, mask=inside, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row + at, power / tl.sum(power, 0), mask=inside)


def softmax(x, y, rows, columns):
    _row[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
