# expect: wrong_result|rejected:unfinished_work|rejected:clock_mismatch|rejected:tampering|passed:no_gain
# A profile hook does the work in the first Python function that is called well after the timed region.
# Fools a harness in Python whose code between the clock and the check calls any Python function.
import sys

import torch

_waiting: list = []


def _hook(frame, event, argument):
    if event != "call" or not _waiting:
        return
    sys.setprofile(None)
    x, y = _waiting.pop()
    torch.softmax(x, 1, out=y)


def softmax(x, y, rows, columns):
    _waiting.append((x, y))
    sys.setprofile(_hook)
