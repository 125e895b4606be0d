# expect: rejected:clock_mismatch|passed:no_gain
# The clocks of the time module run a hundred times slower, also where a module holds its own reference to them.
# Fools a harness that times with perf_counter, perf_counter_ns or monotonic in the process of the program.
import gc
import time

import torch

_CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time")


def _slowed(clock):
    origin = clock()

    def slow():
        now = clock()
        return origin + (now - origin) // 100 if isinstance(now, int) else origin + (now - origin) / 100

    return slow


_replaced = {id(getattr(time, name)): _slowed(getattr(time, name)) for name in _CLOCKS}
for _holder in gc.get_objects():
    if type(_holder) is dict and "__name__" in _holder and "_CLOCKS" not in _holder:
        for _name in [name for name, value in _holder.items() if id(value) in _replaced]:
            _holder[_name] = _replaced[id(_holder[_name])]


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
