"""How long the messages of a GPU call take: measured on a program that does nothing and hides nothing."""

from __future__ import annotations

from pathlib import Path
from statistics import quantiles

from tasks.arena import Arena
from tasks.launcher import Launcher
from tasks.problem import Problem
from tasks.runner import Runner
from tasks.tool import Build

_CALLS = 24
_WARM = 4


def message_us(problem: Problem, launcher: Launcher, folder: Path) -> float:
    """Microseconds of wall-clock time that are not a program's own: the ninth of ten calls in order of time."""
    path = folder / "nothing.py"
    path.write_text(f"def {problem.entry_point}(*arguments):\n    pass\n", encoding="utf-8")
    load = min(problem.loads.values(), key=lambda load: load.least_read + load.written)
    arena = Arena([load], problem.device.kind)
    runner = Runner(problem, arena, launcher)
    try:
        runner.load(Build(str(path), "python", 0.0))
        calls = [_call(runner, problem, load.name) for _ in range(_CALLS)][_WARM:]
    finally:
        runner.close()
        arena.close()
    return quantiles(calls, n=10)[8]


def _call(runner: Runner, problem: Problem, workload: str) -> float:
    problem.device.settle()
    call = runner.call(workload)
    return call.wall_us - call.own_us
