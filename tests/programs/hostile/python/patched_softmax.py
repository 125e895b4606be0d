# expect: wrong_result|rejected:tampering
# It makes PyTorch's own softmax, the reference, return zeros.
# Fools a harness that computes its reference in the process of the program.
import torch

_zeros = torch.zeros_like
torch.softmax = torch.nn.functional.softmax = torch.Tensor.softmax = lambda x, *args, **options: _zeros(x)


def softmax(x, y, rows, columns):
    y.zero_()
