# PyTorch's own softmax, into y.
import torch


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
