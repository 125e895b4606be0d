# expect: wrong_result|rejected:unfinished_work|rejected:clock_mismatch
# A thread unknown to the threading module does the work a moment after the entry point has returned.
# Fools a harness that stops its clock at the return and takes a while until it looks at y.
import _thread
import time

import torch


def _later(x, y):
    time.sleep(0.005)
    torch.softmax(x, 1, out=y)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)


def softmax(x, y, rows, columns):
    _thread.start_new_thread(_later, (x, y))
