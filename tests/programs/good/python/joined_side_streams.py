# Two halves on two side streams (on a CPU: threads of a pool that stays), both joined before the return.
from concurrent.futures import ThreadPoolExecutor

import torch

_streams: list[torch.cuda.Stream] = []
_pool = ThreadPoolExecutor(2)


def _halves(x, y):
    middle = x.shape[0] // 2
    return (x[:middle], y[:middle]), (x[middle:], y[middle:])


def _one(x, y):
    torch.softmax(x, 1, out=y)


def softmax(x, y, rows, columns):
    if not x.is_cuda:
        list(_pool.map(_one, *zip(*_halves(x, y), strict=True)))
        return
    if not _streams:
        _streams.extend(torch.cuda.Stream(x.device) for _ in range(2))
    current = torch.cuda.current_stream(x.device)
    for stream, (part_x, part_y) in zip(_streams, _halves(x, y), strict=True):
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            _one(part_x, part_y)
        current.wait_stream(stream)
