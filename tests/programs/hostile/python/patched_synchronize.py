# expect: wrong_result|rejected:unfinished_work|rejected:clock_mismatch|rejected:tampering
# Synchronising does nothing (on a CPU: joining threads), and the work goes where nobody waits for it.
# Fools a harness that synchronises the device, or joins all threads, before it stops the clock.
import threading
import time

import torch

_streams: list = []


def _nothing(*args, **options):
    return None


for _owner, _name in (
    (torch.cuda, "synchronize"),
    (torch.cuda.Stream, "synchronize"),
    (torch.cuda.Event, "synchronize"),
    (torch.cpu, "synchronize"),
    (torch.accelerator, "synchronize"),
    (threading.Thread, "join"),
):
    setattr(_owner, _name, _nothing)


def _late(x, y):
    time.sleep(0.005)
    torch.softmax(x, 1, out=y)


def softmax(x, y, rows, columns):
    if x.is_cuda:
        if not _streams:
            _streams.append(torch.cuda.Stream(x.device))
        with torch.cuda.stream(_streams[0]):
            torch.cuda._sleep(20_000_000)
            torch.softmax(x, 1, out=y)
    else:
        threading.Thread(target=_late, args=(x, y), daemon=True).start()
