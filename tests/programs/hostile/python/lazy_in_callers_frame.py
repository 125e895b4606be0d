# expect: wrong_result
# It replaces y, in the lists and local variables of its callers, by an object that computes when it is asked.
# Fools a harness that passes tensors from a list, or checks a local variable, in the process of the program.
import ctypes
import gc
import sys

import torch


class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        done = [torch.softmax(value.later, 1) if isinstance(value, Lazy) else value for value in args]
        with torch._C.DisableTorchFunctionSubclass():
            return function(*done, **(kwargs or {}))


def softmax(x, y, rows, columns):
    promise = torch.empty(0, device=x.device).as_subclass(Lazy)
    promise.later = x
    for holder in gc.get_referrers(y):
        if isinstance(holder, list):
            holder[:] = [promise if item is y else item for item in holder]
        elif isinstance(holder, dict) and holder is not locals():
            holder.update({key: promise for key, item in holder.items() if item is y})
    frame = sys._getframe(1)
    while frame is not None:
        replaced = {name: promise for name, item in frame.f_locals.items() if item is y}
        frame.f_locals.update(replaced)
        if replaced and sys.version_info < (3, 13):
            ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
        frame = frame.f_back
