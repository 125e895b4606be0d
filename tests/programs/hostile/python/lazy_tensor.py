# expect: wrong_result
# It turns y into a subclass of Tensor that computes when somebody looks at it.
# Fools a harness that checks y in the same process: the check pays for the work, the timed call does not.
import torch

_inputs: dict[int, torch.Tensor] = {}


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            for value in args:
                if isinstance(value, Lazy) and id(value) in _inputs:
                    torch.softmax(_inputs.pop(id(value)), 1, out=value)
            return function(*args, **(kwargs or {}))


def softmax(x, y, rows, columns):
    _inputs[id(y)] = x
    y.__class__ = Lazy
