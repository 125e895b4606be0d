# expect: wrong_result
# It writes nothing after the first call and leaves what the allocator or an earlier run left in y.
# Fools a harness that does not poison y: it is reused, or an allocator gives freed memory of the reference back as y.
import torch

_calls: list[int] = []


def softmax(x, y, rows, columns):
    _calls.append(rows)
    if len(_calls) == 1:
        torch.softmax(x, 1, out=y)
