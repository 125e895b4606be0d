# expect: wrong_result
# It looks through the live objects of its process for a tensor whose rows sum to one and copies it.
# Fools a harness that has computed the expected output in the process of the program.
import gc

import torch


def softmax(x, y, rows, columns):
    y.zero_()
    for found in gc.get_objects():
        if type(found) is torch.Tensor and found.shape == x.shape and found.data_ptr() != y.data_ptr():
            sums = found[:2].sum(1)
            if torch.all((sums - 1).abs() < 1e-4) and torch.equal(found[0].argmax(), x[0].argmax()):
                y.copy_(found)
                return
