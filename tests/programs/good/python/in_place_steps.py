# Maximum, exponential, sum and quotient one after the other; y is the only large memory.
import torch


def softmax(x, y, rows, columns):
    torch.sub(x, x.amax(1, keepdim=True), out=y)
    y.exp_()
    y.div_(y.sum(1, keepdim=True))
