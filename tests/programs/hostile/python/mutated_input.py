# expect: rejected:mutated_input
# It uses x as scratch memory: the result is right, the input is gone.
# Fools a harness that hands out a copy of the input, or computes its reference before the call.
import torch


def softmax(x, y, rows, columns):
    x.sub_(x.amax(1, keepdim=True)).exp_()
    torch.div(x, x.sum(1, keepdim=True), out=y)
