"""A best program is exported as a submission that says what vouches for it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from gpumode_problem import RIGHT
from tiny_task import write_task
from vouched import receipt

from graph.exporting_gpumode import texts
from state.program import Program
from state.verdict import Passed, WorkloadTiming
from tasks.errors import TaskError
from tasks.measured import Measured

PROGRAM = Program(language="python", source=f"from __future__ import annotations\n{RIGHT}")
VERDICT = Passed(
    timings=(
        WorkloadTiming(workload="a", latency_us=10.0, baseline_us=20.0, baseline="ref_kernel", noise=0.0),
        WorkloadTiming(workload="b", latency_us=10.0, baseline_us=80.0, baseline="compiled", noise=0.0),
    ),
    noise=0.012,
)  # fmt: skip


def test_the_submission_is_the_program_under_what_vouches_for_it(tmp_path: Path) -> None:
    task = write_task(tmp_path).model_copy(update={"origin": "GPU Mode reference-kernels, toy/rows_py"})
    vouches = receipt(PROGRAM.id, task.hash)
    (text,) = texts(Measured(task, PROGRAM, VERDICT, vouches, "2026-01-01T00:00:00Z", "no LLM")).values()
    assert text.endswith(f"\n\n{PROGRAM.source}")
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(PROGRAM.source))
    for said in (
        "toy/rows_py",
        PROGRAM.id,
        "J = 400.0: 4.00x",
        "(compiled, ref_kernel)",
        vouches.id,
        task.hash,
        "# no LLM\n",
    ):
        assert said in text


def test_a_task_of_another_source_has_no_submission(tmp_path: Path) -> None:
    task = write_task(tmp_path)
    with pytest.raises(TaskError, match="only tasks of gpumode:PATH"):
        texts(Measured(task, PROGRAM, VERDICT, receipt(PROGRAM.id, task.hash), "2026-01-01T00:00:00Z"))
