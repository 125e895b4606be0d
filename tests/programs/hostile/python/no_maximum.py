# expect: wrong_result|passed:no_gain
# It leaves out the subtraction of the maximum: inputs beyond 88 overflow.
# Fools a harness whose inputs are all standard normal (then it is even a fair program).
import torch


def softmax(x, y, rows, columns):
    torch.exp(x, out=y)
    y.div_(y.sum(1, keepdim=True))
