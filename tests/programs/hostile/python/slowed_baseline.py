# expect: rejected:tampering|passed:no_gain
# It leaves PyTorch with one thread, denormals slow and a hook that delays every operator; the program pays once.
# Fools a harness that times the baseline in the process of the program, after it.
import time

import torch

_softmax = torch.softmax


def _slow(*args, **options):
    time.sleep(0.01)
    return _softmax(*args, **options)


torch.softmax = torch.nn.functional.softmax = torch.Tensor.softmax = _slow


def softmax(x, y, rows, columns):
    _softmax(x, 1, out=y)
