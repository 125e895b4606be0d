"""A measured program as FlashInfer-Bench's data: a solution, and a trace for each workload."""

from __future__ import annotations

import json
from typing import Any

from state.verdict import WorkloadTiming
from tasks.errors import TaskError
from tasks.flashinfer.adapters import WRAPPER, cpp_solution, cuda_solution, python_solution
from tasks.flashinfer.convention import Convention, convention, workload_axes
from tasks.flashinfer.data import loaded
from tasks.measured import Measured
from tasks.nvcc import binding
from tasks.task import Task, Workload

AUTHOR = "ksearch-langgraph"


def texts(measured: Measured) -> dict[str, str]:
    """The files of a data set, by relative path: solution and traces.

    For a task that was made of no definition also the definition and the workloads. Raises TaskError.
    """
    made = convention(measured.task)
    definition = made.definition
    solution = _solution(measured, made)
    place = f"{definition.op_type}/{definition.name}"
    rows = {load.name: _row(measured.task, load, made) for load in measured.task.workloads}
    traces = [_trace(measured, solution["name"], made, (timing, rows[timing.workload]))
              for timing in measured.verdict.timings]  # fmt: skip
    found = {
        f"solutions/{place}/{solution['name']}.json": json.dumps(solution, indent=1) + "\n",
        f"traces/{place}/{solution['name']}.jsonl": _lines(traces),
    }
    if made.derived:
        plain = definition.model_dump(mode="json")
        only = [{"definition": definition.name, "workload": row, "solution": None, "evaluation": None}
                for row in rows.values()]  # fmt: skip
        found[f"definitions/{place}.json"] = json.dumps(plain, indent=1) + "\n"
        found[f"workloads/{place}.jsonl"] = _lines(only)
    return found


def _lines(items: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


def _solution(measured: Measured, made: Convention) -> dict[str, Any]:
    task, program = measured.task, measured.program
    entry, sources = "main.py::run", {"main.py": python_solution(task, made), "kernel.py": program.source}
    form = None
    if program.language == "cuda":
        entry, sources = f"kernel.cu::{WRAPPER}", {"kernel.cu": cuda_solution(program.source, task, made)}
        form = binding(program.source)
    elif program.language == "cpp":
        entry, sources = f"kernel.cpp::{WRAPPER}", {"kernel.cpp": cpp_solution(program.source, task, made)}
        form = "tvm-ffi"
    needed = {"python": ["torch"], "triton": ["torch", "triton"]}.get(program.language, [])
    description = (
        f"J = {measured.verdict.score:.1f}: 100 times the geometric mean over the workloads of baseline latency / "
        f"latency, on {measured.receipt.hardware}; receipt {measured.receipt.id}. {measured.remark}"
    )
    return {
        "name": f"{made.definition.name}_ksearch_{program.id}",
        "definition": made.definition.name,
        "author": AUTHOR,
        "description": description.strip(),
        "spec": {
            "language": program.language,
            "target_hardware": [measured.receipt.hardware],
            "entry_point": entry,
            "dependencies": needed,
            "destination_passing_style": True,
            "binding": form,
        },
        "sources": [{"path": path, "content": content} for path, content in sources.items()],
    }


def _row(task: Task, load: Workload, made: Convention) -> dict[str, Any]:
    """The workload in upstream's form: as the data set has it, or with inputs that are to be random."""
    if not made.derived:
        known = loaded(task.folder / "workloads.json")
        if load.name not in known:
            raise TaskError(f"{task.folder / 'workloads.json'}: {load.name}: missing")
        row: dict[str, Any] = known[load.name]["row"]
        return row
    values = load.dims | load.params
    inputs = {name: {"type": "random"} if spec.shape is not None else {"type": "scalar", "value": values[name]}
              for name, spec in made.definition.inputs.items()}  # fmt: skip
    return {"axes": workload_axes(made, task, load.dims), "inputs": inputs, "uuid": f"{task.name}-{load.name}"}


def _trace(
    measured: Measured, solution: str, made: Convention, case: tuple[WorkloadTiming, dict[str, Any]]
) -> dict[str, Any]:
    """One workload's trace. The largest errors are NaN: an evaluation says that they are within the tolerance."""
    timing, row = case
    receipt, tolerance = measured.receipt, measured.task.tolerance
    extra = {
        "errors": "not recorded; checked element by element against the tolerance",
        **({} if tolerance is None else tolerance.model_dump()),
        "checks": list(receipt.checks),
        "receipt": receipt.id,
    }
    return {
        "definition": made.definition.name,
        "workload": row,
        "solution": solution,
        "evaluation": {
            "status": "PASSED",
            "environment": {"hardware": receipt.hardware, "libs": receipt.versions},
            "timestamp": measured.when,
            "log": f"{receipt.evaluator}, {receipt.rounds} rounds: {receipt.method}\n"
            f"Reference: {timing.baseline}; relative standard error of the ratio {timing.noise:.3g}.\n"
            + (f"Inputs: {receipt.inputs}.\n" if receipt.inputs else ""),
            "correctness": {"max_relative_error": "NaN", "max_absolute_error": "NaN", "extra": extra},
            "performance": {
                "latency_ms": timing.latency_us / 1000,
                "reference_latency_ms": timing.baseline_us / 1000,
                "speedup_factor": timing.speedup,
            },
        },
    }
