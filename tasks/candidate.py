"""The candidate's own process: loads one shared object and calls it on command.

Run by enclosure.py in a bare interpreter (-I -S); imports nothing of the project and little of the standard
library. Its argument is the control socket.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

AWAKEN = b"awaken"
"""The request, and its answer, that comes right before a timed call."""
NOTHING = b"nothing"
"""The request to pass a moment: its round trip shows what a reply costs, before any code of the program runs."""
LOAD = b"load"
MOMENT_NS = 100_000
"""Long enough for the parent to fall asleep: waking it is most of what a reply costs on a virtual machine."""
_FILES = 256
"""Open files: each may hold memory that no limit of the process counts (memfd, pipes)."""


def main() -> None:
    """Serves until the control socket is closed or the shared object ends the process."""
    control = int(sys.argv[1])
    setup = json.loads(os.read(control, 1 << 18))
    size = setup["arena"]["size"]
    arena = mmap.mmap(setup["arena"]["fd"], size)
    touched = sum(arena[offset] for offset in range(0, size, mmap.PAGESIZE))
    _limit(setup)
    base = ctypes.addressof(ctypes.c_char.from_buffer(arena))
    calls = [_arguments(base, call) for call in setup["calls"]]
    os.write(control, b"set up %d" % (touched & 1))
    _call_nothing(control, calls[0])
    try:
        function = getattr(ctypes.CDLL(setup["library"]), setup["entry_point"])
    except (OSError, AttributeError) as error:
        os.write(control, b"cannot load: " + str(error).encode()[:4000])
        return
    function.restype = None
    os.write(control, b"ready")
    _serve(control, function, calls)


def _limit(setup: dict[str, Any]) -> None:
    statm = os.open("/proc/self/statm", os.O_RDONLY)
    mapped = int(os.read(statm, 256).split()[0]) * mmap.PAGESIZE
    os.close(statm)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + setup["memory"], mapped + setup["memory"]))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (setup["file_size"], setup["file_size"]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))


def _call_nothing(control: int, arguments: list[Any]) -> None:
    """The interpreter is warm, and the parent knows what a reply costs."""
    clock = time.perf_counter_ns
    nothing = ctypes.CDLL(None).getppid
    while (request := os.read(control, 64)) != LOAD:
        if request == AWAKEN:
            os.write(control, AWAKEN)
            continue
        began = clock()
        nothing(*arguments)
        pass_a_moment()
        os.write(control, b"%d" % (clock() - began))


def pass_a_moment() -> None:
    """As a call does that takes a moment: busy, for MOMENT_NS."""
    until = time.perf_counter_ns() + MOMENT_NS
    while time.perf_counter_ns() < until:
        pass


def _arguments(base: int, call: dict[str, Any]) -> list[Any]:
    pointers: list[Any] = [ctypes.c_void_p(base + offset) for offset in call["offsets"]]
    numbers: list[Any] = [ctypes.c_int64(dim) for dim in call["dims"]]
    return pointers + numbers + [ctypes.c_double(param) for param in call["params"]]


def _awakener() -> Callable[[], object]:
    """Wakes the OpenMP threads of a program that has any: an empty parallel region, run by libgomp itself."""
    try:
        libgomp = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return lambda: None
    nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)
    return lambda: libgomp.GOMP_parallel(nothing, None, 0, 0)


def _serve(control: int, function: Any, calls: list[list[Any]]) -> None:
    clock = time.perf_counter_ns
    awaken = _awakener()
    while request := os.read(control, 64):
        if request == AWAKEN:
            awaken()
            os.write(control, AWAKEN)
            continue
        arguments = calls[int(request)]
        began = clock()
        function(*arguments)
        ended = clock()
        os.write(control, b"%d" % (ended - began))


if __name__ == "__main__":
    main()
