# expect: rejected:clock_mismatch|passed:no_gain
# Events of PyTorch report a hundredth of the time.
# Fools a harness that times with torch.cuda.Event in the process of the program.
import torch

_elapsed = torch.cuda.Event.elapsed_time
torch.cuda.Event.elapsed_time = lambda self, end: _elapsed(self, end) / 100


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
