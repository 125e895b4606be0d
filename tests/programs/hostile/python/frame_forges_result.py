# expect: wrong_result|rejected:tampering|rejected:clock_mismatch|crashed
# It wraps whatever its callers use to answer (send, write, dumps, print) so that times shrink and checks are true.
# Fools a harness whose guest measures or judges, and only reports the result.
import builtins
import gc
import json
import os
import re

_NUMBER = re.compile(rb'("?(?:latency|elapsed|time|ns|us|duration)\w*"?\s*:\s*)([0-9.e+-]+)')
_FALSE = re.compile(rb'("?(?:ok|correct|passed|success|match)\w*"?\s*:\s*)false')


def _better(data):
    data = _NUMBER.sub(lambda found: found[1] + b"1" + b" " * (len(found[2]) - 1), bytes(data))
    return _FALSE.sub(rb"\1true ", data)


def _wrapped_write(write):
    def forged(fd, data):
        return write(fd, _better(data))

    return forged


def _wrapped_dumps(dumps):
    def forged(value, **options):
        return _better(dumps(value, **options).encode()).decode()

    return forged


_replaced = {
    id(os.write): _wrapped_write(os.write),
    id(json.dumps): _wrapped_dumps(json.dumps),
    id(builtins.print): lambda *args, _print=builtins.print, **options: _print(
        *(_better(str(a).encode()).decode() for a in args), **options
    ),
}
_mine = globals()


def softmax(x, y, rows, columns):
    y.zero_()
    for holder in gc.get_objects():
        if type(holder) is dict and "__name__" in holder and holder is not _mine:
            for name in [name for name, value in holder.items() if id(value) in _replaced]:
                holder[name] = _replaced[id(holder[name])]
