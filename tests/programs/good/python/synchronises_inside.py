# It reads a value back in the middle of the work (synchronising the device) and returns when all is done.
import torch


def softmax(x, y, rows, columns):
    if float(x.abs().max()) < 80:
        torch.exp(x, out=y)
    else:
        torch.exp(torch.sub(x, x.amax(1, keepdim=True), out=y), out=y)
    y.div_(y.sum(1, keepdim=True))
    if x.is_cuda:
        torch.cuda.synchronize(x.device)
