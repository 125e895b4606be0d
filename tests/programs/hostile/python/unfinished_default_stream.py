# expect: timed_out|wrong_result|rejected:unfinished_work|rejected:clock_mismatch
# It queues hours of sleep and then the work on the current stream (on a CPU: never comes to the work) and returns.
# Fools a harness that takes the clock around the launch, does not synchronise, and checks an earlier call.
import threading

import torch

_calls: list[int] = []


def softmax(x, y, rows, columns):
    _calls.append(rows)
    if len(_calls) > 1:
        if x.is_cuda:
            torch.cuda._sleep(1 << 44)
        else:
            late = threading.Timer(3600, torch.softmax, (x, 1), {"out": y})
            late.daemon = True
            late.start()
            return
    torch.softmax(x, 1, out=y)
