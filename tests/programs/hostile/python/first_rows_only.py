# expect: wrong_result
# Only the first and last rows are computed; the others are uniform.
# Fools a harness that compares a sample, or reads only the head and the tail of a large output.
import torch


def softmax(x, y, rows, columns):
    y.fill_(1 / columns)
    for part in (slice(0, 4), slice(-4, None)):
        y[part] = torch.softmax(x[part], 1)
