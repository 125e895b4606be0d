# expect: rejected:out_of_bounds_write|crashed|wrong_result
# It zeroes y and all the memory after it that it can reach in the same mapping (at most 64 MiB).
# Fools a harness that keeps the expected output behind the output: zeros equal zeros.
import ctypes
import re
from pathlib import Path

import torch


class _Raw:
    def __init__(self, pointer, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (pointer, False), "version": 3}


def _end_of_mapping(pointer):
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(edge, 16) for edge in re.match(r"(\w+)-(\w+)", line).groups())
        if start <= pointer < end:
            return end if " rw-s " in line else pointer
    return pointer


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
    end = y.data_ptr() + 4 * rows * columns
    if x.is_cuda:
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(y.data_ptr()))
        count = min(64 << 20, base.value + size.value - end) // 4
        torch.as_tensor(_Raw(end, count), device=x.device).zero_()
    else:
        ctypes.memset(end, 0, min(64 << 20, max(256, _end_of_mapping(end) - end)))
    y.zero_()
