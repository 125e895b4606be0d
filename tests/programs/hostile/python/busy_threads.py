# expect: rejected:busy_after_return|rejected:unfinished_work|rejected:clock_mismatch|passed:no_gain
# After each call work goes on for a while: threads on a CPU, sleep kernels on side streams on a GPU.
# Fools a harness that times the baseline right after the program and does not stop the program for it.
import threading
import time

import torch

_left: list = []


def _spin(size):
    block = torch.ones(size)
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        block.exp_().log_()


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
    if x.is_cuda:
        if not _left:
            _left.extend(torch.cuda.Stream(x.device) for _ in range(32))
        for stream in _left:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(100_000_000)
        return
    for _ in range(torch.get_num_threads()):
        threading.Thread(target=_spin, args=(1 << 16,), daemon=True).start()
