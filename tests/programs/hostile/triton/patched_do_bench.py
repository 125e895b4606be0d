# expect: wrong_result|rejected:tampering|rejected:clock_mismatch
# do_bench of Triton, and the runtime's own timer, report 0.1 us for everything; half of the rows are computed.
# Fools a harness that times with triton.testing.do_bench in the process of the program.
import torch
import triton
import triton.language as tl
import triton.testing


def _instant(function, *args, quantiles=None, **options):
    function()
    return [1e-4] * len(quantiles) if quantiles else 1e-4


triton.testing.do_bench = triton.testing.do_bench_cudagraph = _instant
torch.cuda.Event.elapsed_time = lambda self, end: 1e-4


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row + at, power / tl.sum(power, 0), mask=at < columns)


def softmax(x, y, rows, columns):
    _row[((rows + 1) // 2,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
