"""What a candidate's process is told of the calls to come, and how long handing over their outputs may take.

Standard library and torch only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from tasks.arena import Arena
from tasks.called import Called
from tasks.faults import forged, misshapen, raised
from tasks.handing import DELIVER
from tasks.problem import Problem, ProblemError
from tasks.timing import overdue

_TRIALS, _FIRST_TRIALS = 8, 3
_LONGEST = 200_000
"""Bytes of a set-up message that the control socket surely takes."""


def calls(problem: Problem, arena: Arena) -> dict[str, Any]:
    """How the entry point is called, and where the tensors of each workload lie."""
    told: dict[str, Any] = {"call": problem.call, "calls": [_layout(problem, arena, name) for name in arena.offsets]}
    if isinstance(problem, Called) and problem.call == "module":
        told["module"] = {"init": problem.init, "seed": problem.seed, "training": problem.training}
    if len(json.dumps(told)) > _LONGEST:
        raise ProblemError(f"{problem.manifest}: workloads: too many, or with too many tensors, for one evaluation")
    return told


def _layout(problem: Problem, arena: Arena, name: str) -> dict[str, Any]:
    load, offsets = problem.loads[name], arena.offsets[name]
    specs = (*load.inputs, *load.outputs)
    return {
        "offsets": [offsets[spec.name] for spec in specs],
        "tensors": [
            {"name": spec.name, "returned": spec in load.outputs and problem.call != "tensors",
             "offset": offsets[spec.name], "size": spec.nbytes, "strides": spec.strides,
             "dtype": str(spec.dtype).removeprefix("torch."), "shape": list(spec.shape)} for spec in specs
        ],
        "data": load.data,
        "returned": load.returned,
        "dims": [load.dims[dim] for dim in problem.dims],
        "params": [load.params[param] for param in problem.params],
    }  # fmt: skip


class Handovers:
    """What the handing over of returned outputs costs in one process, on the trusted clock."""

    def __init__(
        self, problem: Problem, arena: Arena, ask: Callable[[bytes, str], bytes], answered_ns: Callable[[], int]
    ) -> None:
        """`answered_ns` says when the latest answer was sent (time.time_ns)."""
        self._problem = problem
        self._arena = arena
        self._ask = ask
        self._answered_ns = answered_ns
        self._order = list(arena.offsets)
        self._usual: dict[str, tuple[float, float]] = {}

    def try_out(self, during: str) -> None:
        """It is known what copying the outputs of each workload takes, and by how much that varies.

        No code of the program runs yet.
        """
        for name in self._order if self._problem.call != "tensors" else ():
            taken = [self._trial(name, during) for _ in range(_TRIALS)][_FIRST_TRIALS:]
            self._usual[name] = median(taken), sorted(taken)[-2] - median(taken)  # a single slow one is chance

    def take(self, name: str, during: str, reply_us: float) -> float:
        """The outputs of a call are in the arena; Fault where they cannot be outputs.

        Returns the microseconds that copying them does not explain; 0.0 where the program writes its outputs itself.
        """
        if self._problem.call == "tensors":
            return 0.0
        took_us, answer = self._deliver(name, during)
        if answer[:1] == b"?":
            raise misshapen(answer, name)
        if answer[:1] == b"!":
            raise raised(answer, self._problem.memory_mb, during)
        if answer != DELIVER:
            raise forged(during)
        return overdue(took_us, self._usual[name], reply_us)

    def _trial(self, name: str, during: str) -> float:
        self._arena.poison(self._problem.loads[name])
        self._problem.device.settle()
        return self._deliver(name, during)[0]

    def _deliver(self, name: str, during: str) -> tuple[float, bytes]:
        began = time.time_ns()
        answer = self._ask(DELIVER + b" %d" % self._order.index(name), during)
        return (self._answered_ns() - began) / 1000, answer
