"""What a program must define, in each language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from state.program import Language

if TYPE_CHECKING:
    from tasks.task import Task, TensorSpec

C_TYPES = {
    "float32": "float", "float64": "double", "int8": "int8_t", "uint8": "uint8_t",
    "int16": "int16_t", "int32": "int32_t", "int64": "int64_t",
    "bfloat16": "uint16_t", "float16": "uint16_t", "float8_e4m3fn": "uint8_t", "float8_e5m2": "uint8_t", "bool": "bool",
}  # fmt: skip
"""C type of each tensor dtype (floats of 16 and of 8 bits arrive as their bits)."""

_RETURNING = {
    "data": "def {name}(data):  # data: what make_inputs returns; returns what reference(data) returns",
    "arguments": "def {name}(*data):  # data: what make_inputs returns; returns what reference(*data) returns",
    "module": "class {name}(torch.nn.Module):  # {name}(*make_init()) is called with (*data), where data is what "
    "make_inputs\n    # returns; it returns what the reference module returns, and draws its weights in the same order",
}
"""The same for each form of call under which the entry point returns its outputs."""


def prototype(task: Task, language: Language) -> str:
    """The declaration of the entry point: tensors in, tensors out, then dimensions and params; or as `call` says."""
    if task.call != "tensors":
        return _RETURNING[task.call].format(name=task.entry_point)
    if language == "cpp":
        return _c(task)
    return _cuda(task) if language == "cuda" else _python(task)


def _c(task: Task) -> str:
    arguments = [f"const {C_TYPES[t.dtype]} *{t.name}" for t in task.inputs]
    arguments += [f"{C_TYPES[t.dtype]} *{t.name}" for t in task.outputs]
    arguments += _numbers(task)
    return f'extern "C" void {task.entry_point}({", ".join(arguments)});'


def _cuda(task: Task) -> str:
    arguments = [f"tvm::ffi::TensorView {t.name}" for t in (*task.inputs, *task.outputs)]
    arguments += _numbers(task)
    name = task.entry_point
    return f"void {name}({', '.join(arguments)});\nTVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, {name});"


def _python(task: Task) -> str:
    names = [t.name for t in (*task.inputs, *task.outputs)] + [*task.dims, *task.params]
    comment = f"inputs: {described(task.inputs)}; outputs: {described(task.outputs)}"
    if task.dims:
        comment += f"; {', '.join(task.dims)}: int"
    if task.params:
        comment += f"; {', '.join(task.params)}: float"
    return f"def {task.entry_point}({', '.join(names)}):  # {comment}"


def _numbers(task: Task) -> list[str]:
    return [f"int64_t {name}" for name in task.dims] + [f"double {name}" for name in task.params]


def described(tensors: Sequence[TensorSpec]) -> str:
    """Name, shape and dtype of tensors, in one line."""
    return ", ".join(f"{t.name} [{', '.join(map(str, t.shape))}] {t.dtype}" for t in tensors)
