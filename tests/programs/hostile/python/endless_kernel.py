# expect: timed_out
# It never ends: on a GPU a kernel that sleeps for hours, on a CPU a loop.
# Fools a harness whose time limit is checked between calls, or by the process that is stuck.
import torch


def softmax(x, y, rows, columns):
    if x.is_cuda:
        torch.cuda._sleep(1 << 62)
        torch.cuda.synchronize(x.device)
    while True:
        pass
