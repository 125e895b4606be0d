# expect: crashed
# The kernel stores at an address that is mapped nowhere.
# Fools a harness in one process: the context is dead for all later candidates.
import torch
import triton
import triton.language as tl


@triton.jit
def _row(x, y, columns, far, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row + at, mask=at < columns, other=0.0)
    tl.store(y + far + row + at, value, mask=at < columns)


def softmax(x, y, rows, columns):
    _row[(rows,)](x, y, columns, 1 << 44, BLOCK=triton.next_power_of_2(columns))
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
