# expect: wrong_result
# It looks whether somebody times it (a short gap since the last call) and then computes every second row only.
# Fools a harness that checks one careful call and times a tight loop without checking.
import time

import torch

_last = [0.0]


def softmax(x, y, rows, columns):
    now = time.monotonic()
    gap, _last[0] = now - _last[0], now
    step = 2 if gap < 5.0 else 1
    y[::step] = torch.softmax(x[::step], 1)
