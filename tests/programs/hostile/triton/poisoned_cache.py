# expect: wrong_result|rejected:tampering
# It overwrites the compiled kernels in Triton's cache (only where TRITON_CACHE_DIR names one).
# Fools a harness whose processes share one cache folder: the baseline, or the next program, runs it.
import os
from pathlib import Path

import torch
import triton

_CACHE = os.environ.get("TRITON_CACHE_DIR")


def _poison():
    for binary in Path(_CACHE).glob("*/*.cubin"):
        binary.write_bytes(b"\x7fELF")


def softmax(x, y, rows, columns):
    if _CACHE and triton.__version__:
        _poison()
    y.copy_(torch.zeros_like(x))
