# expect: wrong_result
# It remembers the result by the address of x and writes it again.
# Fools a harness that refills the same input tensor, or that repeats calls on one input.
import torch

_results: dict[int, torch.Tensor] = {}


def softmax(x, y, rows, columns):
    known = _results.get(x.data_ptr())
    if known is None or known.shape != x.shape:
        known = _results[x.data_ptr()] = torch.softmax(x, 1)
    y.copy_(known)
