"""Verdicts with receipts, as deterministic as those of `fakes`."""

from __future__ import annotations

from collections.abc import Sequence

from fakes import HashEvaluator

from state.program import Program
from state.verdict import Receipt, Verdict
from tasks.task import Workload


class VouchedEvaluator(HashEvaluator):
    """HashEvaluator's verdicts, each with a receipt."""

    def _verdict(self, program: Program, workloads: Sequence[Workload] = ()) -> Verdict:
        return super()._verdict(program, workloads).model_copy(update={"receipt": receipt(program.id, self.task.hash)})


def receipt(program: str, task_hash: str) -> Receipt:
    return Receipt(task="scaffold", task_hash=task_hash, program_id=program, evaluator="hash-1", hardware="none",
                   isa="none", versions={}, compiler_flags=(), threads=1, environment={}, seeds=(1, 2))  # fmt: skip
