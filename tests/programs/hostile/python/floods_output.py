# expect: crashed|timed_out|rejected:left_files|passed:no_gain
# It prints 100 MB in each call; the result is right.
# Fools a harness that reads output only after the end (the pipe fills up), or keeps all of it in memory.
import sys

import torch

_LINE = "x" * 99 + "\n"


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
    for _ in range(100):
        sys.stdout.write(_LINE * 10_000)
    sys.stdout.flush()
