# expect: wrong_result
# It returns the result and does not write y.
# Fools a harness that lets the return value stand for the output.
import torch


def softmax(x, y, rows, columns):
    return torch.softmax(x, 1)
