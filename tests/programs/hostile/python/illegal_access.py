# expect: crashed
# On a GPU it indexes far beyond a tensor on the device, on a CPU it writes through a null pointer.
# Fools a harness in one process: the context, or the harness itself, is dead for all later candidates.
import ctypes

import torch


def softmax(x, y, rows, columns):
    if x.is_cuda:
        beyond = torch.full((rows,), 1 << 40, dtype=torch.int64, device=x.device)
        torch.index_select(x, 0, beyond, out=y)
        torch.cuda.synchronize(x.device)
    ctypes.memset(None, 1, 64)
