# expect: crashed|timed_out|rejected:memory_limit|passed:no_gain
# It takes all memory of the device down to the last MiB, keeps it, and computes rightly (on a CPU: host memory).
# Fools a harness whose own tensors, or the next candidate's, need device memory at that moment.
import torch

_hoard: list[torch.Tensor] = []


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
    size = 1 << 30
    while size >= 1 << 20:
        try:
            _hoard.append(torch.ones(size, dtype=torch.uint8, device=x.device))
        except RuntimeError:
            size //= 2
