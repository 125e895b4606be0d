# expect: rejected:out_of_bounds_write
# The result is right; the last store reaches a few floats past the end of y.
# Fools a harness that only compares y: the neighbour in memory is damaged.
import ctypes

import torch


class _Raw:
    def __init__(self, pointer, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (pointer, False), "version": 3}


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
    end = y.data_ptr() + 4 * rows * columns
    if x.is_cuda:
        torch.as_tensor(_Raw(end, 4), device=x.device).fill_(1.0)
    else:
        ctypes.memset(end, 1, 16)
