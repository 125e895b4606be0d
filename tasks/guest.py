"""A candidate that needs PyTorch, in a process of its own: loads one program and calls it on command.

Forked by the zygote, inside the enclosure. What is measured here is measured in the program's own process, so the
trusted side believes it only where its own clock agrees.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import json
import mmap
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import torch

from tasks.candidate import AWAKEN, LOAD, NOTHING, pass_a_moment
from tasks.driver import FLUSH_BYTES, Driver, DriverError
from tasks.handing import DELIVER, Handover, arguments_of
from tasks.memory import device_bytes
from tasks.structure import put_together

_SHOWN = 6000
_MODULE = "kernel"


TimedCall = Callable[[Callable[[], object], int, bool], tuple[int, int, int]]


class _Side(Protocol):
    memory: torch.Tensor
    """The shared block, uint8."""

    def awaken(self) -> None:
        """The device works for this process now, and does nothing."""

    def touch(self) -> object:
        """The least work that there is."""

    def settle(self) -> object:
        """The device has done all that it was given."""

    call: TimedCall
    """Nanoseconds of one call; of what still ran on the device after it; and until it had been launched.

    It is given the work, the cycles of a sleep before it, and whether caches are to be cold.
    """


class _Cpu:
    def __init__(self, grant: dict[str, Any], fd: int) -> None:
        self._map = mmap.mmap(fd, grant["size"])
        self.memory = torch.frombuffer(self._map, dtype=torch.uint8)
        self.call = _cpu_call()

    def awaken(self) -> None:
        return

    def touch(self) -> object:
        pass_a_moment()
        return None

    def settle(self) -> object:
        return None


def _cpu_call() -> TimedCall:
    """A _Side's `call` by the wall clock."""
    clock = time.perf_counter_ns

    def call(work: Callable[[], object], cycles: int, cold: bool) -> tuple[int, int, int]:
        began = clock()
        work()
        took = clock() - began
        return took, 0, took

    return call


class _Gpu:
    """Its calls of the driver are bound before any code of the program runs: what is patched later is of no effect."""

    def __init__(self, grant: dict[str, Any]) -> None:
        torch.zeros(1, device="cuda")
        driver = Driver()
        self.memory = device_bytes(driver.open(bytes.fromhex(grant["ipc"])), grant["size"])
        self._driver = driver
        self._least = torch.empty(1, dtype=torch.uint8, device="cuda").zero_
        self.call = _gpu_call(driver, torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda").zero_)
        self.settle = driver.bound()[0]
        driver.synchronize()

    def awaken(self) -> None:
        self._least()
        self._driver.synchronize()

    def touch(self) -> object:
        return self._least()


def _gpu_call(driver: Driver, flush: Callable[[], object]) -> TimedCall:
    """A _Side's `call`, with all that it uses in its own closure."""
    start, end, clock = driver.event(), driver.event(), time.perf_counter_ns
    sleep: Callable[[int], object] = torch.cuda._sleep
    synchronize, record, wait, elapsed_us = driver.bound()

    def call(work: Callable[[], object], cycles: int, cold: bool) -> tuple[int, int, int]:
        synchronize()
        if cold:
            flush()
        if cycles:
            sleep(cycles)
        record(start)
        began = clock()
        work()
        launched = clock()
        record(end)
        wait(end)
        ended = clock()
        synchronize()
        settled = clock()
        return int(1000 * elapsed_us(start, end)), settled - ended, launched - began

    return call


def main() -> None:
    """Serves until the control socket is closed or the program ends the process."""
    control, arena = int(sys.argv[1]), int(sys.argv[2])
    setup = json.loads(os.read(control, 1 << 18))
    grant = setup["arena"]
    try:
        side: _Side = _Gpu(grant) if arena < 0 else _Cpu(grant, arena)
    except (RuntimeError, DriverError, OSError) as error:
        os.write(control, b"no context: " + f"{type(error).__name__}: {error}".encode()[:_SHOWN])
        return
    _limit(setup)
    os.write(control, b"context")
    with torch.no_grad():
        handover = Handover(side.memory, setup["calls"], side.settle)
        _call_nothing(control, side, handover)
        try:
            function = _load(setup["library"], setup["form"], setup["entry_point"])
            if setup["call"] == "module":
                function = _module(function, setup["module"], side.memory.device)
        except BaseException as error:  # noqa: BLE001 - the candidate's own code
            os.write(control, _complaint(error))
            return
        os.write(control, b"ready")
        _serve(control, side, (function, setup), handover)


def _limit(setup: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (setup["file_size"], setup["file_size"]))


def _call_nothing(control: int, side: _Side, handover: Handover) -> None:
    """The parent knows what a reply and a handover cost, before any code of the program runs."""
    while (request := os.read(control, 64)) != LOAD:
        if request == NOTHING:
            os.write(control, b"%d %d %d" % side.call(side.touch, 0, False))
        elif request.startswith(DELIVER):
            os.write(control, handover.trial(int(request.split()[1])))
        else:
            side.awaken()
            os.write(control, AWAKEN)
    handover.forget()


def _load(library: str, form: str, entry_point: str) -> Callable[..., object]:
    """The program's entry point. Whatever its own code raises passes through."""
    if form == "tvm-ffi":
        import tvm_ffi

        found: Callable[..., object] = getattr(tvm_ffi.load_module(library), entry_point)
        return found
    loader: Any = importlib.machinery.SourceFileLoader(_MODULE, library)
    if form == "torch":
        loader = importlib.machinery.ExtensionFileLoader(_MODULE, library)
    spec = importlib.util.spec_from_loader(_MODULE, loader)
    if spec is None:
        raise ImportError(library)
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    loader.exec_module(module)
    loaded: Callable[..., object] = getattr(module, entry_point)
    return loaded


def _module(entry: Callable[..., Any], how: dict[str, Any], device: torch.device) -> Callable[..., object]:
    """The program's module, as the reference's was made: under the same seed, and in the same mode."""
    torch.manual_seed(how["seed"])
    made: Callable[..., object] = entry(*put_together(how["init"], {})).to(device).train(how["training"])
    return made


def _serve(
    control: int, side: _Side, program: tuple[Callable[..., object], dict[str, Any]], handover: Handover
) -> None:
    read, write, memory, call, deliver = os.read, os.write, side.memory, side.call, handover.deliver
    function, setup = program
    calls, form = setup["calls"], setup["call"]
    arguments: list[Any] = []
    returned: list[object] = [None]

    def work() -> None:
        returned[0] = function(*arguments)

    while request := read(control, 64):
        if request.startswith(AWAKEN):
            arguments = arguments_of(memory, calls[int(request.split()[1])], form)
            side.awaken()
            write(control, AWAKEN)
            continue
        try:
            if request.startswith(DELIVER):
                answer = deliver(int(request.split()[1]), returned[0])
                returned[0] = None
            else:
                cycles, cold = (int(word) for word in request.split())
                answer = b"%d %d %d" % call(work, cycles, bool(cold))
        except BaseException as error:  # noqa: BLE001 - the candidate's own code
            write(control, _complaint(error))
            return
        write(control, answer)


def _complaint(error: BaseException) -> bytes:
    """What went wrong, with the lines of the program that led there."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    own = [frame for frame in frames if frame.filename.endswith("kernel.py")] or frames[-2:]
    places = "".join(f"\n  line {frame.lineno}, in {frame.name}: {frame.line}" for frame in own[-3:])
    kind = type(error).__name__
    with contextlib.suppress(Exception):
        return f"!{kind}\n{str(error)[:3000]}{places}".encode(errors="replace")[:_SHOWN]
    return f"!{kind}\n(its message cannot be read)".encode()


if __name__ == "__main__":
    main()
