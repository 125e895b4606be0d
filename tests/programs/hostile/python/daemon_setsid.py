# expect: rejected:left_process
# A daemon (double fork, setsid) stays for ten minutes; the result is right.
# Fools a harness that kills a process group, or only its direct child.
import os
import time

import torch

_started: list[int] = []


def _daemon():
    if os.fork():
        return
    os.setsid()
    if os.fork() == 0:
        for fd in range(256):
            try:
                os.close(fd)
            except OSError:
                continue
        time.sleep(600)
    os._exit(0)


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
    if not _started:
        _started.append(1)
        _daemon()
