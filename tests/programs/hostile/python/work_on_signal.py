# expect: wrong_result|rejected:unfinished_work|rejected:clock_mismatch
# A timer signal does the work after the return, in the main thread: no thread and no stream can be seen.
# Fools a harness that looks for threads and streams left behind, but reads y a while after the call.
import signal

import torch

_waiting: list = []


def _work(number, frame):
    while _waiting:
        x, y = _waiting.pop()
        torch.softmax(x, 1, out=y)


def softmax(x, y, rows, columns):
    _waiting.append((x, y))
    signal.signal(signal.SIGALRM, _work)
    signal.setitimer(signal.ITIMER_REAL, 0.005)
