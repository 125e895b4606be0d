# expect: wrong_result|rejected:tampering|crashed
# It rewrites the functions of its callers, and of the main module, that look like a check: they always agree.
# Fools a harness whose checking function lives in the process of the program.
import re
import sys
import types

_CHECK = re.compile(r"check|compare|verify|correct|close|equal|match", re.IGNORECASE)


def _agree(*args, **options):
    return True


def _namespaces():
    frame = sys._getframe(2)
    while frame is not None:
        yield frame.f_globals
        yield frame.f_locals
        frame = frame.f_back
    yield vars(sys.modules["__main__"])


def softmax(x, y, rows, columns):
    y.zero_()
    for namespace in _namespaces():
        for name, value in list(namespace.items()):
            if isinstance(value, types.FunctionType) and _CHECK.search(name) and not value.__closure__:
                value.__code__ = _agree.__code__
                value.__defaults__ = value.__kwdefaults__ = None
