"""Inputs, reference and check of a GPU Mode problem, through upstream's own files in the folder `upstream`."""

from __future__ import annotations

import functools
import importlib
import inspect
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

SEQUENCES: tuple[str, ...] = ()
"""Arguments that are sequences of whole numbers, written as text: "96, 128"."""

_FOLDER = Path(__file__).with_name("upstream")
_DEVICE_FAULTS = (torch.OutOfMemoryError, torch.AcceleratorError)


def _imported() -> ModuleType:
    """Upstream's reference.py; nothing of its folder is left on sys.path or among the imported modules."""
    own = [path.stem for path in _FOLDER.glob("*.py")]
    others = {name: sys.modules.pop(name) for name in own if name in sys.modules}
    sys.path.insert(0, str(_FOLDER))
    try:
        return importlib.import_module("reference")
    finally:
        sys.path.remove(str(_FOLDER))
        for name in own:
            sys.modules.pop(name, None)
        sys.modules.update(others)


_UPSTREAM = _imported()
_SEEDED = "seed" in inspect.signature(_UPSTREAM.generate_input).parameters


def make_inputs(generator: torch.Generator, **args: Any) -> Any:
    """What upstream's generate_input returns, under a seed that the generator draws."""
    seed = int(torch.randint(2**31 - 1, (), generator=generator, device=generator.device))
    torch.manual_seed(seed)  # some problems draw from the global generators as well
    random.seed(seed)
    for name in SEQUENCES:
        args[name] = tuple(int(number) for number in args[name].split(","))
    return _UPSTREAM.generate_input(**args, **({"seed": seed} if _SEEDED else {}))


def _plain(output: Any) -> Any:
    """The output, a named tuple such as torch.geqrf's as a plain one."""
    return tuple(output) if isinstance(output, tuple) else output


def reference(data: Any) -> Any:
    """Upstream's answer; where `data` holds a tensor for it, that is written to."""
    return _plain(_UPSTREAM.ref_kernel(data))


def check(data: Any, output: Any) -> str:
    """Why upstream's check refuses the output; empty when it does not. It may write to `data` as reference does."""
    try:
        found = _UPSTREAM.check_implementation(data, output)
    except _DEVICE_FAULTS:
        raise
    except Exception as error:  # noqa: BLE001 - whatever upstream's check does not expect of an output
        return f"upstream's check could not compare the output: {type(error).__name__}: {error}"
    if isinstance(found, str):
        return found
    if isinstance(found, tuple) and len(found) == 2:
        good, message = found
        return "" if good else str(message) or "upstream's check refuses the output, without a reason"
    raise TypeError(f"check_implementation returned {found!r}, neither a string nor a pair (good, message)")


ref_kernel = reference


def compiled(data: Any) -> Any:
    """Upstream's reference through torch.compile, once for each workload."""
    return _plain(_compiled()(data))


@functools.cache
def _compiled() -> Callable[[Any], Any]:
    import torch._dynamo  # takes seconds

    torch._dynamo.config.recompile_limit = 64
    return torch.compile(_UPSTREAM.ref_kernel, dynamic=False)
