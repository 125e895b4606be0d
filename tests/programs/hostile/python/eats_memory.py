# expect: crashed|timed_out
# It takes memory, and touches it, until there is none.
# Fools a harness without a memory limit: the kernel ends some other process, perhaps the harness.
import torch

_hoard: list[torch.Tensor] = []


def softmax(x, y, rows, columns):
    while True:
        _hoard.append(torch.ones(16 << 20))
