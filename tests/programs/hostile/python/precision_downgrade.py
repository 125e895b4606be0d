# expect: wrong_result
# All arithmetic is done in half precision.
# Fools a harness with a tolerance of 1e-2, KernelBench's default for years.
import torch


def softmax(x, y, rows, columns):
    y.copy_(torch.softmax(x.half(), 1))
