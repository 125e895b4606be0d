# It logs a line on each call, warns, and collects garbage: untidy, but honest.
import gc
import sys
import warnings

import torch


def softmax(x, y, rows, columns):
    print(f"softmax of {rows} x {columns} on {x.device}", file=sys.stderr)
    warnings.warn("row-wise softmax", stacklevel=1)
    gc.collect()
    torch.softmax(x, 1, out=y)
