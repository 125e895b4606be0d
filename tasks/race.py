"""A race of PyTorch formulations: which one a candidate has to beat on a workload. Standard library and torch only."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from tasks.closeness import close
from tasks.memory import same_bytes
from tasks.problem import Load, Problem, ProblemError, Tensors, new_seed

_ROUNDS = 15
_MIN_ROUNDS = 3
_WARM_CALLS = 3
_BUDGET_S = 1.5
_HOPELESS = 3.0
"""A formulation whose warm calls are this many times slower than the fastest takes no part in the rounds."""


def timed(problem: Problem, load: Load, function: str, inputs: Tensors) -> tuple[float, Any]:
    """Latency in microseconds of one call of a formulation, and what it returned; its plan is not timed."""
    return problem.device.timed(problem.prepared(function, load, inputs), function)


def race(problem: Problem, load: Load) -> dict[str, Any]:
    """The plain fields of a BaselineTiming; ProblemError when no formulation is both right and able to run."""
    inputs = problem.inputs(load, new_seed())
    expected = _reference(problem, load, inputs)
    errors: dict[str, str] = {}
    latencies: dict[str, float] = {}
    for function in problem.baselines:
        fault = _unfit(problem, load, function, (inputs, expected))
        if fault:
            errors[function] = fault
        else:
            hope = _HOPELESS * min(latencies.values(), default=float("inf"))
            latencies[function] = _warm_latency(problem, load, function, (inputs, hope))
    if not latencies:
        reasons = "; ".join(f"{function}: {reason}" for function, reason in errors.items())
        raise ProblemError(f"{problem.file}: baselines: none can be used on workload {load.name!r}: {reasons}")
    hope = _HOPELESS * min(latencies.values())
    latencies |= _rounds(problem, load, [name for name, latency in latencies.items() if latency <= hope])
    strongest = min(latencies, key=lambda function: latencies[function])
    return {
        "workload": load.name,
        "latency_us": latencies,
        "strongest": strongest,
        "errors": errors,
        "plan_us": _plans(problem, load, list(latencies), inputs),
    }


def warm(problem: Problem, load: Load, function: str) -> None:
    """What first calls set up (torch.compile, caches) is set up. Raises ProblemError when the formulation raises."""
    for _ in range(_WARM_CALLS):
        problem.formulation(function, load, problem.inputs(load, new_seed()))


def _warm_latency(problem: Problem, load: Load, function: str, case: tuple[Tensors, float]) -> float:
    """The faster of two calls; the second is spared when the first leaves no hope."""
    inputs, hope = case
    first, _ = timed(problem, load, function, inputs)
    return first if first > hope else min(first, timed(problem, load, function, inputs)[0])


def _reference(problem: Problem, load: Load, inputs: Tensors) -> Tensors:
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    expected = problem.reference(load, inputs)
    for name, tensor in inputs.items():
        if not same_bytes(tensor, before[name]):
            raise ProblemError(f"{problem.file}: reference: changes its input {name!r}")
    return expected


def _unfit(problem: Problem, load: Load, function: str, known: tuple[Tensors, Tensors]) -> str:
    """Why a formulation cannot be a baseline here; empty when it can."""
    inputs, expected = known
    own = {name: tensor.clone() for name, tensor in inputs.items()}
    try:
        outputs = problem.formulation(function, load, own)
        complaint = problem.complaint(load, inputs, outputs)
    except ProblemError as error:
        return str(error)
    for name, tensor in own.items():
        if not same_bytes(tensor, inputs[name]):
            return f"changes its input {name!r}"
    for name, want in expected.items() if complaint is None else ():
        got = outputs[name]
        if got.shape != want.shape:
            return f"{name} has shape {list(got.shape)} instead of {list(want.shape)}"
        if not close(got.contiguous(), want, problem.tolerance):
            worst = float((got.double() - want.double()).abs().max())
            return f"{name} disagrees with the reference by up to {worst:.4g} (tolerance {problem.tolerance})"
    return complaint or ""


def _plans(problem: Problem, load: Load, names: list[str], inputs: Tensors) -> dict[str, float]:
    """Median host time of what is planned before each formulation that plans."""
    times = {name: [problem.plan_us(name, load, inputs) for _ in range(_WARM_CALLS)] for name in names}
    return {name: median(taken) for name, all_of in times.items() if (taken := [us for us in all_of if us is not None])}


def _rounds(problem: Problem, load: Load, runners: list[str]) -> dict[str, float]:
    """Median latency of each formulation over interleaved rounds, each on fresh inputs after an untimed call."""
    samples: dict[str, list[float]] = {function: [] for function in runners}
    earlier = problem.inputs(load, new_seed())
    began = time.monotonic()
    for index in range(_ROUNDS):
        if index >= _MIN_ROUNDS and time.monotonic() - began > _BUDGET_S:
            break
        inputs = problem.inputs(load, new_seed())
        for function in runners[index % len(runners) :] + runners[: index % len(runners)]:
            timed(problem, load, function, earlier)
            samples[function].append(timed(problem, load, function, inputs)[0])
        earlier = inputs
    return {function: median(taken) for function, taken in samples.items()}
