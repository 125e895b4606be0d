# expect: wrong_result
# It copies the output of its first call, whatever x is.
# Fools a harness that checks the first call and times the later ones.
import torch

_first: dict[tuple[int, int], torch.Tensor] = {}


def softmax(x, y, rows, columns):
    if (rows, columns) not in _first:
        _first[rows, columns] = torch.softmax(x, 1)
    y.copy_(_first[rows, columns])
