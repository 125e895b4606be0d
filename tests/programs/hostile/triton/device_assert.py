# expect: crashed
# An inline assembly trap ends the kernel and with it the context.
# Fools a harness that takes the launch failure for a sick device and gives no verdict.
import torch
import triton
import triton.language as tl


@triton.jit
def _trap(y):
    value = tl.inline_asm_elementwise(
        "trap; mov.b32 $0, $1;", "=r,r", [tl.load(y)], dtype=tl.float32, is_pure=False, pack=1
    )
    tl.store(y, value)


def softmax(x, y, rows, columns):
    _trap[(1,)](y)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
