# Online softmax over blocks of columns that fit a cache, with the running maximum and sum.
import torch

_BLOCK = 4096


def softmax(x, y, rows, columns):
    highest = torch.full((rows, 1), -torch.inf, device=x.device)
    total = torch.zeros((rows, 1), device=x.device)
    for block in x.split(_BLOCK, 1):
        higher = torch.maximum(highest, block.amax(1, keepdim=True))
        total.mul_(torch.exp(highest - higher)).add_(torch.exp(block - higher).sum(1, keepdim=True))
        highest = higher
    torch.sub(x, highest, out=y).exp_().div_(total)
