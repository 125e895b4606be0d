# expect: rejected:left_process|crashed:out_of_memory
# Busy child processes that outlive the call slow whoever is timed next; the result is right.
# Fools a harness that times the baseline after, or between, the calls of the program.
import os
import time

import torch

_children: list[int] = []


def _spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    os._exit(0)


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
    if not _children:
        for _ in range(os.cpu_count() or 1):
            child = os.fork()
            if not child:
                _spin(300)
            _children.append(child)
