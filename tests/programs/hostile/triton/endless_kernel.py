# expect: timed_out
# The kernel waits for a value that nobody writes.
# Fools a harness that synchronises without a limit: a kernel cannot be interrupted, its process must die.
import torch
import triton
import triton.language as tl


@triton.jit
def _wait(flag, y):
    found = tl.load(flag, volatile=True)
    while found == 0:
        found = tl.load(flag, volatile=True)
    tl.store(y, found.to(tl.float32))


def softmax(x, y, rows, columns):
    flag = torch.zeros(1, dtype=torch.int32, device=x.device)
    _wait[(1,)](flag, y)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
