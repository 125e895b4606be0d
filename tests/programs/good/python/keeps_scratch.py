# It keeps scratch memory per shape and device between calls, and uses it anew each time.
import torch

_scratch: dict[tuple, tuple[torch.Tensor, torch.Tensor]] = {}


def softmax(x, y, rows, columns):
    key = (rows, columns, x.device)
    if key not in _scratch:
        _scratch[key] = (torch.empty(rows, 1, device=x.device), torch.empty_like(x))
    edge, powers = _scratch[key]
    torch.amax(x, 1, keepdim=True, out=edge)
    torch.exp(torch.sub(x, edge, out=powers), out=powers)
    torch.sum(powers, 1, keepdim=True, out=edge)
    torch.div(powers, edge, out=y)
