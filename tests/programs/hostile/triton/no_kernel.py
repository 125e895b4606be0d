# expect: passed:no_gain|rejected:wrong_language
# It declares a kernel and calls PyTorch instead.
# Fools a harness that looks for the word triton.jit in the source.
import torch
import triton
import triton.language as tl


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at))


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
