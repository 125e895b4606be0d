# expect: crashed|compile_error
# Its kernel wants more shared memory and registers than a multiprocessor has: it fails at launch, not before.
# Fools a harness that counts a failure to launch as an outage of the device.
import triton
import triton.language as tl


@triton.jit
def _product(x, y, columns, SIDE: tl.constexpr):
    at = tl.arange(0, SIDE)
    offset = at[:, None] * SIDE + at[None, :]
    inside = offset < columns
    a = tl.load(x + offset, mask=inside, other=0.0)
    b = tl.load(x + tl.trans(offset), mask=tl.trans(inside), other=0.0)
    tl.store(y + offset, tl.dot(a, b), mask=inside)


def softmax(x, y, rows, columns):
    _product[(1,)](x, y, columns, SIDE=256, num_warps=8)
