# expect: wrong_result|rejected:unfinished_work|rejected:clock_mismatch
# The work goes to a second stream (on a CPU: to a thread that stands ready) and nobody joins it.
# Fools a harness that takes events on its own stream, or the clock, around the call.
import queue
import threading

import torch

_jobs: queue.SimpleQueue = queue.SimpleQueue()
_streams: list = []


def _serve():
    while True:
        x, y = _jobs.get()
        torch.softmax(x, 1, out=y)


def softmax(x, y, rows, columns):
    if x.is_cuda:
        if not _streams:
            _streams.append(torch.cuda.Stream(x.device))
        with torch.cuda.stream(_streams[0]):
            torch.cuda._sleep(20_000_000)
            torch.softmax(x, 1, out=y)
        return
    if not _streams:
        _streams.append(threading.Thread(target=_serve, daemon=True))
        _streams[0].start()
    _jobs.put((x, y))
