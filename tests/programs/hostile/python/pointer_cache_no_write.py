# expect: wrong_result
# It returns at once when it has been given these two addresses before: the result is still there.
# Fools a harness that times many calls on the same tensors and does not poison the output between them.
import torch

_seen: set[tuple[int, int]] = set()


def softmax(x, y, rows, columns):
    key = (x.data_ptr(), y.data_ptr())
    if key not in _seen:
        torch.softmax(x, 1, out=y)
        _seen.add(key)
