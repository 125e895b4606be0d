# expect: crashed|timed_out|rejected:memory_limit
# It writes anonymous files in memory, which no limit on its address space counts (it stops at 8 GiB).
# Fools a harness that limits RLIMIT_AS only.
import os

import torch

_files: list[int] = []


def _eat():
    block = bytes(64 << 20)
    for _ in range(128):
        _files.append(os.memfd_create("ballast"))
        os.write(_files[-1], block)


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
    if not _files:
        _eat()
