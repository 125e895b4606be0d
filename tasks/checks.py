"""What is wrong with a candidate's outputs, in words that a coder can act on. Standard library and torch only."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tasks.arena import Arena
from tasks.closeness import Tolerance, close, wrong
from tasks.faults import Fault, rejected
from tasks.problem import Load, Problem, Spec, Tensors

_SHOWN = 4


def inspect(arena: Arena, load: Load, inputs: Tensors) -> None:
    """Guards and inputs are as they were written; otherwise Fault."""
    breach = arena.breach(load)
    if breach is not None:
        raise rejected(
            "out_of_bounds_write",
            f"the program wrote outside of its tensors on workload {load.name!r}: {breach.distance} byte(s) "
            f"{breach.side} of {breach.tensor!r}",
        )  # fmt: skip
    mutated = arena.mutated(load, inputs)
    if mutated is not None:
        raise rejected(
            "mutated_input",
            f"the program changed its input {mutated!r} on workload {load.name!r}; inputs are read-only",
        )  # fmt: skip


def judged(problem: Problem, load: Load, inputs: Tensors, outputs: Tensors) -> bool:
    """Whether the task's own check has found the outputs right, and not the tolerance decides; otherwise Fault."""
    complaint = problem.complaint(load, inputs, outputs)
    if complaint:
        message = f"the task's own check on workload {load.name!r}: {complaint}"
        raise Fault(kind="wrong_result", reason="check", workload=load.name, message=message)
    return complaint is not None


def compare(arena: Arena, load: Load, expected: Tensors, tolerance: Tolerance, context: str) -> None:
    """Every output is within the tolerance; otherwise Fault with the first output that is not."""
    outputs = arena.outputs(load)
    for spec in load.outputs:
        got, want = outputs[spec.name], expected[spec.name]
        if not close(got, want, tolerance):
            outside = wrong(got, want, tolerance)
            unwritten = arena.unwritten(load, spec) & outside
            raise _fault(load, spec, _Difference(got, want, outside, unwritten), f"{context}; tolerance {tolerance}")


@dataclass(frozen=True)
class _Difference:
    got: torch.Tensor
    want: torch.Tensor
    wrong: torch.Tensor
    unwritten: torch.Tensor


def _fault(load: Load, spec: Spec, found: _Difference, context: str) -> Fault:
    count, total = int(found.wrong.sum()), found.wrong.numel()
    share = f"{count} of {total} elements ({100 * count / total:.3g} %)"
    shape = "x".join(str(extent) for extent in spec.shape)
    place = f"output {spec.name!r} ({shape}) on workload {load.name!r}"
    unwritten = int(found.unwritten.sum())
    if 2 * unwritten > count:
        reason, message = "unwritten", f"{place}: {_unwritten(found.unwritten)}"
    elif spec.dtype.is_floating_point and bool((found.got.isnan() & found.wrong).any()):
        nans = found.got.isnan() & found.wrong
        reason, message = "nan", f"{place}: {int(nans.sum())} of {total} elements are NaN, first at {_first(nans)}"
    else:
        reason, message = "mismatch", f"{place}: {share} differ. {_worst(found)}{_shape_hint(spec, found)}"
    return Fault(
        kind="wrong_result", reason=reason, workload=load.name, message=f"{message}\n{_samples(found)}\n({context})"
    )


def _first(mask: torch.Tensor) -> list[int]:
    return [int(index) for index in mask.nonzero()[0]]


def _unwritten(mask: torch.Tensor) -> str:
    """How much was never written, and which rows when whole rows are missing."""
    count = f"{int(mask.sum())} of {mask.numel()} elements"
    text = f"{count} were never written (or only added to: outputs are not zeroed)"
    rows = mask.reshape(mask.shape[0], -1) if mask.dim() else mask.reshape(1, 1)
    whole = rows.all(dim=1).nonzero().flatten()
    if len(whole):
        text += f"; rows {int(whole[0])}..{int(whole[-1])} of {len(rows)} wholly ({len(whole)} rows)"
    return f"{text}, first at {_first(mask)}"


def _worst(found: _Difference) -> str:
    error = (found.got.double() - found.want.double()).abs().nan_to_num(float("inf"), posinf=float("inf"))
    at = int(torch.where(found.wrong, error, 0.0).argmax())
    relative = torch.where(found.wrong, error / found.want.double().abs().clamp_min(1e-30), 0.0)
    return f"Worst absolute error {float(error.flatten()[at]):.4g}, worst relative error {float(relative.max()):.4g}."


def _shape_hint(spec: Spec, found: _Difference) -> str:
    """A guess at the cause where the wrong values have a simple relation to the right ones."""
    got, want = found.got.double(), found.want.double()
    if len(spec.shape) >= 2 and got.numel():
        turned = got.reshape(*spec.shape[:-2], spec.shape[-1], spec.shape[-2]).transpose(-1, -2)
        if float(((turned - want).abs() <= 1e-3 * want.abs().max()).double().mean()) > 0.99:
            return " The output is the transpose of what is expected: rows and columns are swapped (wrong shape)."
    ratio = (got / want)[want.abs() > 1e-3 * want.abs().max()]
    if len(ratio) > 8 and bool(ratio.isfinite().all()) and float(ratio.std()) < 1e-3 * abs(float(ratio.mean())):
        return f" Every element is {float(ratio.mean()):.4g} times what is expected."
    if not spec.shape:
        return ""
    rows = found.wrong.reshape(spec.shape[0], -1).any(dim=1).nonzero().flatten()
    if len(rows) < spec.shape[0]:
        return f" Only rows {int(rows[0])}..{int(rows[-1])} are affected ({len(rows)} of {spec.shape[0]})."
    return ""


def _samples(found: _Difference) -> str:
    places = found.wrong.nonzero()[:_SHOWN]
    lines = []
    for place in places:
        index = tuple(int(i) for i in place)
        got, want = float(found.got[index]), float(found.want[index])
        lines.append(f"  [{', '.join(map(str, index))}] expected {want:.6g}, got {got:.6g}")
    return "\n".join(lines)
