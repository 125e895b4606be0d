# expect: wrong_result
# It binds y to remembered memory of its own instead of writing the memory that it was given.
# Fools a harness that looks at the tensor object y afterwards and not at the memory that it handed out.
import torch

_results: dict[tuple[int, int], torch.Tensor] = {}


def softmax(x, y, rows, columns):
    if (rows, columns) not in _results:
        _results[rows, columns] = torch.softmax(x, 1)
    y.data = _results[rows, columns]
