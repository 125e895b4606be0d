# expect: wrong_result|crashed|rejected:tampering|rejected:clock_mismatch
# It replaces the import system and what ctypes, struct, socket and json hand out; later imports get forgeries.
# Fools a harness that imports its clock, its checker or its protocol after the program.
import builtins
import ctypes
import json
import socket
import struct

_import = builtins.__import__
_dumps, _pack, _sendall = json.dumps, struct.pack, socket.socket.sendall


def _favourable(value):
    if isinstance(value, dict):
        better = {key: True for key in ("ok", "correct", "passed") if key in value}
        return {key: item / 100 if isinstance(item, float) else item for key, item in value.items()} | better
    return value


def _forging(name, *args, **options):
    module = _import(name, *args, **options)
    if name == "json":
        module.dumps = lambda value, **more: _dumps(_favourable(value), **more)
    if name == "struct":
        module.pack = lambda form, *values: _pack(form, *(v / 100 if isinstance(v, float) else v for v in values))
    if name == "time":
        module.perf_counter = lambda: 0.0
        module.perf_counter_ns = lambda: 0
    if name == "torch" and hasattr(module, "allclose"):
        module.allclose = lambda *values, **more: True
    return module


def _no_call(self, name):
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *args: 0


builtins.__import__ = _forging
ctypes.CDLL.__getattr__ = _no_call
json.dumps = lambda value, **more: _dumps(_favourable(value), **more)
socket.socket.sendmsg = lambda self, buffers, *rest: _sendall(self, b"".join(buffers))


def softmax(x, y, rows, columns):
    y.zero_()
