# expect: wrong_result
# It remembers the result by the shape and by the rounded mean of a few elements of x.
# Fools a harness whose timed calls repeat an input, in new memory, or whose inputs differ little.
import torch

_results: dict[tuple[int, int, float], torch.Tensor] = {}


def softmax(x, y, rows, columns):
    key = (rows, columns, round(float(x.flatten()[:: max(1, rows * columns // 4096)].mean()), 0) + 0.0)
    if key not in _results:
        _results[key] = torch.softmax(x, 1)
    y.copy_(_results[key])
