# expect: wrong_result|rejected:mutated_input
# It makes y a view of x, computed in place: a pass over memory is saved.
# Fools a harness that looks at the tensor object y afterwards and not at the memory that it handed out.
import torch


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=x)
    y.set_(x)
