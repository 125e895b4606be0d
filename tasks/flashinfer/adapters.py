"""Texts that stand between the two calling conventions: a solution's and a task's."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tasks.errors import TaskError
from tasks.flashinfer.convention import Convention, extent
from tasks.nvcc import binding
from tasks.prototype import C_TYPES
from tasks.task import Task

WRAPPER = "ksearch_solution"
"""Name of the entry point of an exported program in C++ or CUDA."""
_EXPORT = r"TVM_FFI_DLL_EXPORT_TYPED_FUNC\s*\(\s*{symbol}\s*,\s*([\w:]+)\s*\)\s*;?"
_DEF = r'\.def\s*\(\s*"{symbol}"\s*,\s*&?\s*([A-Za-z_][\w:]*)\s*([,)])'
_MODULE = re.compile(r"PYBIND11_MODULE\s*\(\s*\w+\s*,\s*(\w+)\s*\)\s*\{")


def python_program(text: str, symbol: str, task: Task, made: Convention, returns: bool) -> str:
    """A solution's module with an entry point after the task's convention at its end."""
    names = [spec.name for spec in (*task.inputs, *task.outputs)] + [*task.dims, *task.params]
    inputs = ", ".join(f"bool({name})" if made.is_bool(name) else name for name in made.inputs)
    outputs = ", ".join(made.outputs)
    head = f"{text.rstrip()}\n\n\n_solution = {symbol}\n"
    entry = f'\n\ndef {task.entry_point}({", ".join(names)}):\n    """Calls the solution by its own convention."""\n'
    if not returns:
        return f"{head}{entry}    _solution({inputs}, {outputs})\n"
    return f"{head}{_PUT}{entry}    _put(_solution({inputs}), {made.outputs!r}, ({outputs},))\n"


_PUT = '''

def _put(found, names, outputs):
    """What the solution returned is in the outputs."""
    if isinstance(found, dict):
        found = [found[name] for name in names]
    elif not isinstance(found, (tuple, list)):
        found = [found]
    if len(found) != len(outputs):
        raise ValueError(f"the solution returns {len(found)} values instead of {len(outputs)}")
    for name, value, output in zip(names, found, outputs):
        if not hasattr(value, "shape"):
            output.fill_(value)
        elif (value.shape, value.dtype) == (output.shape, output.dtype):
            output.copy_(value)
        else:
            raise ValueError(f"{name}: {value.dtype} {value.shape} instead of {output.dtype} {output.shape}")
'''


def python_solution(task: Task, made: Convention) -> str:
    """A module that calls the task's program, kernel.py beside it, as a solution in destination passing style."""
    given = ", ".join(_given(task, made, "{tensor}.shape[{axis}]", "int", "float"))
    return (
        f'"""Calls the program in kernel.py as FlashInfer-Bench calls a solution: inputs, then outputs."""\n\n'
        f"from .kernel import {task.entry_point} as _program\n\n\n"
        f"def run({', '.join([*made.inputs, *made.outputs])}):\n"
        f'    """Writes the outputs."""\n    _program({given})\n'
    )


def _given(task: Task, made: Convention, size: str, whole: str, real: str) -> list[str]:
    """The arguments of the task's entry point, from those of a solution."""
    arguments = [spec.name for spec in (*task.inputs, *task.outputs)]
    for dim in task.dims:
        arguments.append(extent(made.extents[dim], size) if dim in made.extents else f"{whole}({dim})")
    return arguments + [f"{real}({param})" for param in task.params]


@dataclass(frozen=True)
class _Bound:
    """How a source makes a function known to Python."""

    form: str
    function: str
    start: int
    end: int
    """Where in the source."""


def _bound(text: str, symbol: str) -> _Bound:
    form = binding(text)
    pattern = _EXPORT if form == "tvm-ffi" else _DEF
    match = re.search(pattern.format(symbol=re.escape(symbol)), text)
    if match is None:
        how = "TVM_FFI_DLL_EXPORT_TYPED_FUNC" if form == "tvm-ffi" else "m.def of a named function"
        raise TaskError(f"{symbol}: the source does not export it by {how}: no adapter can be put around it")
    return _Bound(form, match[1], match.start(), match.end())


def cuda_program(text: str, symbol: str, task: Task, made: Convention) -> str:
    """A solution's CUDA source whose entry point follows the task's convention. Raises TaskError."""
    bound = _bound(text, symbol)
    kind = "tvm::ffi::TensorView" if bound.form == "tvm-ffi" else "torch::Tensor"
    parameters = [f"{kind} {spec.name}" for spec in (*task.inputs, *task.outputs)]
    parameters += [f"int64_t {dim}" for dim in task.dims] + [f"double {param}" for param in task.params]
    given = [f"{name} != 0" if made.is_bool(name) else name for name in made.inputs] + made.outputs
    return _wrapped(text, bound, task.entry_point, (parameters, given), own=symbol)


def cuda_solution(text: str, task: Task, made: Convention) -> str:
    """A task's CUDA program with a further export, WRAPPER, that is called as a solution is. Raises TaskError."""
    bound = _bound(text, task.entry_point)
    kind = "tvm::ffi::TensorView" if bound.form == "tvm-ffi" else "torch::Tensor"
    given = _given(task, made, "{tensor}.size({axis})", "static_cast<int64_t>", "static_cast<double>")
    return _wrapped(text, bound, WRAPPER, (_parameters(made, kind), given), own="")


def _parameters(made: Convention, kind: str) -> list[str]:
    """A solution's parameters in C++."""
    found = []
    for name, spec in made.definition.inputs.items():
        scalar = "double" if spec.is_float else "bool" if spec.dtype == "bool" else "int64_t"
        found.append(f"{scalar if spec.shape is None else kind} {name}")
    return found + [f"{kind} {name}" for name in made.outputs]


def _wrapped(text: str, bound: _Bound, name: str, call: tuple[list[str], list[str]], own: str) -> str:
    """The source with one more exported function; an export of the name `own` is left out."""
    parameters, given = call
    inner = f"{name}_adapter"
    adapter = f"static void {inner}({', '.join(parameters)}) {{ {bound.function}({', '.join(given)}); }}\n"
    if bound.form == "tvm-ffi":
        rest = text[: bound.start] + text[bound.end :] if own else text
        return f"{rest.rstrip()}\n\n{adapter}TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, {inner});\n"
    if own:
        renamed = text[bound.start : bound.end].replace(f'"{own}"', f'"{own}_own"')
        text = text[: bound.start] + renamed + text[bound.end :]
    module = _MODULE.search(text)
    if module is None:
        raise TaskError(f"{own or name}: no PYBIND11_MODULE in the source: no adapter can be put around it")
    start, end = module.span()
    return f'{text[:start]}{adapter}{text[start:end]}\n    {module[1]}.def("{name}", &{inner});{text[end:]}'


def cpp_solution(text: str, task: Task, made: Convention) -> str:
    """A task's C++ program with a TVM-FFI export, WRAPPER, that is called as a solution is."""
    pointers = {
        spec.name: f"static_cast<const {C_TYPES[spec.dtype]} *>({spec.name}.data_ptr())" for spec in task.inputs
    }
    pointers |= {spec.name: f"static_cast<{C_TYPES[spec.dtype]} *>({spec.name}.data_ptr())" for spec in task.outputs}
    given = _given(task, made, "{tensor}.size({axis})", "static_cast<int64_t>", "static_cast<double>")
    call = ", ".join(pointers.get(name, name) for name in given)
    parameters = ", ".join(_parameters(made, "tvm::ffi::TensorView"))
    return (
        f"{text.rstrip()}\n\n#include <tvm/ffi/container/tensor.h>\n#include <tvm/ffi/function.h>\n\n"
        f"static void {WRAPPER}_adapter({parameters}) {{\n    {task.entry_point}({call});\n}}\n"
        f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({WRAPPER}, {WRAPPER}_adapter);\n"
    )
