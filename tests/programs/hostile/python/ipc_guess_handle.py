# expect: wrong_result|crashed|rejected:tampering
# It maps memory beyond its own tensors: on a GPU the whole allocation behind x and y, on a CPU the whole memfd.
# Fools a harness that keeps the expected output in the allocation, or in the file, that carries the tensors.
import ctypes
import mmap
import re
from pathlib import Path

import torch


class _Raw:
    def __init__(self, pointer, count):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (pointer, False), "version": 3}


def _regions(x, y):
    if x.is_cuda:
        driver = ctypes.CDLL("libcuda.so.1")
        for tensor in (x, y):
            base, size = ctypes.c_uint64(), ctypes.c_size_t()
            driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(tensor.data_ptr()))
            yield torch.as_tensor(_Raw(base.value, size.value // 4), device=x.device)
        return
    for line in Path("/proc/self/maps").read_text().splitlines():
        found = re.match(r"(\w+)-(\w+) r.-s \w+ \S+ \d+ +(?:/memfd:|/dev/shm/|/dev/zero)", line)
        if found:
            start, end = int(found[1], 16), int(found[2], 16)
            buffer = (ctypes.c_char * (end - start // mmap.PAGESIZE * mmap.PAGESIZE)).from_address(start)
            yield torch.frombuffer(buffer, dtype=torch.float32)


def softmax(x, y, rows, columns):
    y.zero_()
    row = torch.softmax(x[:1], 1).flatten()[:4]
    for region in _regions(x, y):
        starts = (region[: -rows * columns + 1] - row[0]).abs().lt(1e-7).nonzero().flatten().tolist()
        for start in starts:
            if torch.allclose(region[start : start + 4], row, rtol=1e-4):
                y.copy_(region[start : start + rows * columns].view(rows, columns))
                return
