# torch.compile: the first call of each shape takes seconds, starts a compiler and leaves files in its cache.
import torch


@torch.compile(dynamic=False)
def _rows(x):
    powers = torch.exp(x - x.amax(1, keepdim=True))
    return powers / powers.sum(1, keepdim=True)


def softmax(x, y, rows, columns):
    y.copy_(_rows(x))
