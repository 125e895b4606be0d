# expect: wrong_result|rejected:unfinished_work|rejected:clock_mismatch
# The kernel waits on a second stream that nobody joins; in the interpreter, in a thread.
# Fools a harness that takes events on its own stream around the call.
import threading

import torch
import triton
import triton.language as tl

_streams: list[torch.cuda.Stream] = []


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row + at, power / tl.sum(power, 0), mask=at < columns)


def _launch(x, y, rows, columns):
    _row[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))


def softmax(x, y, rows, columns):
    if not x.is_cuda:
        threading.Thread(target=_launch, args=(x, y, rows, columns), daemon=True).start()
        return
    if not _streams:
        _streams.append(torch.cuda.Stream(x.device))
    with torch.cuda.stream(_streams[0]):
        torch.cuda._sleep(20_000_000)
        _launch(x, y, rows, columns)
