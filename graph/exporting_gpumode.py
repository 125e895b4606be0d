"""A run's best program as a GPU Mode submission."""

from __future__ import annotations

from tasks.measured import Measured
from tasks.sources.gpumode import ORIGIN
from tasks.task import TaskError


def texts(measured: Measured) -> dict[str, str]:
    """submission.py: the program under a comment that says what vouches for it.

    Raises TaskError for a task that is no problem of GPU Mode.
    """
    task, program, verdict, receipt = measured.task, measured.program, measured.verdict, measured.receipt
    if not task.origin.startswith(ORIGIN):
        raise TaskError(f"{task.name}: only tasks of gpumode:PATH have submissions for GPU Mode")
    fastest = sorted({timing.baseline for timing in verdict.timings})
    lines = [
        f"{task.origin} (task {task.name}, {task.hash})",
        f"Program {program.id}, found by ksearch",
        f"J = {verdict.score:.1f}: {verdict.score / 100:.2f}x the fastest form of upstream's reference "
        f"({', '.join(fastest)}), geometric mean over {len(verdict.timings)} workloads",
        f"Measured on {receipt.hardware} (noise {verdict.noise:.1%}); receipt {receipt.id}",
        measured.remark,
    ]
    head = "".join(f"# {' '.join(line.split())}\n" for line in lines if line)
    return {"submission.py": f"{head}\n{program.source}"}
