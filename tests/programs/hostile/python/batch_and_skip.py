# expect: wrong_result|rejected:batched_ahead|rejected:out_of_bounds_write|passed:no_gain
# In one call it computes every pair of tensors of this shape that it finds, then skips as many calls.
# Fools a harness that prepares all inputs and outputs ahead and times each call on its own (the first is slow).
import gc

import torch

_done: set[int] = set()


def softmax(x, y, rows, columns):
    if y.data_ptr() in _done:
        return
    torch.softmax(x, 1, out=y)
    _done.add(y.data_ptr())
    others = [t for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == x.shape and t.device == x.device]
    waiting = [t for t in others if not torch.isfinite(t[0, 0]) or not t.any()]
    full = [
        t for t in others if torch.isfinite(t[0, 0]) and t.any() and t.data_ptr() not in (x.data_ptr(), y.data_ptr())
    ]
    for later_x, later_y in zip(full, waiting, strict=False):
        torch.softmax(later_x, 1, out=later_y)
        _done.add(later_y.data_ptr())
