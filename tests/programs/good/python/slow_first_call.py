# It tries its variants on the first call of a shape, on memory of its own, and keeps the fastest.
import time

import torch


def _library(x, y):
    torch.softmax(x, 1, out=y)


def _steps(x, y):
    torch.exp(torch.sub(x, x.amax(1, keepdim=True), out=y), out=y)
    y.div_(y.sum(1, keepdim=True))


_chosen: dict[tuple, object] = {}


def _seconds(variant, x):
    y = torch.empty_like(x)
    variant(x, y)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    began = time.perf_counter()
    for _ in range(10):
        variant(x, y)
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
    return time.perf_counter() - began


def softmax(x, y, rows, columns):
    key = (rows, columns, x.device)
    if key not in _chosen:
        own = torch.randn(rows, columns, device=x.device)
        _chosen[key] = min((_library, _steps), key=lambda variant: _seconds(variant, own))
        time.sleep(0.5)
    _chosen[key](x, y)
