# expect: rejected:clock_mismatch|rejected:tampering
# Events of PyTorch report a hundredth of the time.
# Fools a harness that times with torch.cuda.Event in the process of the program.
import torch

for _class in (torch.cuda.Event, torch.Event):
    _elapsed = _class.elapsed_time
    _class.elapsed_time = lambda self, end, _elapsed=_elapsed: _elapsed(self, end) / 100


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
