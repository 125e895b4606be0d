# expect: wrong_result
# It works in every second call only.
# Fools a harness that warms up before each timed call on the same tensors, or that checks every other call.
import itertools

import torch

_count = itertools.count()


def softmax(x, y, rows, columns):
    if next(_count) % 2 == 0:
        torch.softmax(x, 1, out=y)
