"""A FlashInfer-Bench solution as a program: its sources as one text, under the task's own calling convention."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from state.program import Language, Program, imports_triton
from tasks.errors import TaskError
from tasks.flashinfer.adapters import cuda_program, python_program
from tasks.flashinfer.convention import Convention, convention
from tasks.flashinfer.data import Solution, loaded, parse
from tasks.joining import Parts, closure, joined_c, joined_python, used
from tasks.sources.flashinfer import says, task_name
from tasks.task import Task

_UNITS = (".cu", ".cpp", ".cc")


def is_solution(data: Any) -> bool:
    """Whether JSON looks like a solution at all."""
    return isinstance(data, dict) and {"definition", "spec", "sources"} <= data.keys()


def program_of(file: Path, task: Task) -> Program:
    """The program of a solution's JSON file. Raises TaskError, with the reason when it cannot be one of this task."""
    solution = parse(Solution, loaded(file), str(file))
    if task_name(solution.definition) != task.name and not says(task.origin, solution.definition):
        raise TaskError(f"{file}: definition: it is for {solution.definition}, not for task {task.name}")
    made = convention(task)
    parts = {source.path: source.content for source in solution.sources}
    try:
        language, text = _text(solution, parts, task, made)
    except TaskError as error:
        raise TaskError(f"{file}: {error}") from None
    if language not in task.languages:
        taken = ", ".join(task.languages)
        raise TaskError(f"{file}: a {language} program; here task {task.name} takes {taken} (see --language)")
    return Program(language=language, source=text)


def _text(solution: Solution, parts: Parts, task: Task, made: Convention) -> tuple[Language, str]:
    spec = solution.spec
    if spec.language in ("python", "triton"):
        texts = [parts[name] for name in closure(spec.file, parts)]
        language: Language = "triton" if spec.language == "triton" or any(map(imports_triton, texts)) else "python"
        return language, _python(solution, parts, task, made)
    if spec.language == "cuda":
        if not spec.destination_passing_style:
            raise TaskError(
                "spec.destination_passing_style: a CUDA solution that returns its outputs cannot be adapted"
            )
        units = [name for name in sorted(parts) if name.endswith(_UNITS) and name != spec.file]
        included = {name for path in parts for name in used(path, parts)}
        joined = joined_c([*(unit for unit in units if unit not in included), spec.file], parts)
        text = joined if len(parts) > 1 else parts[spec.file]
        return "cuda", cuda_program(text, spec.function, task, made)
    why = "its bindings are not those of a C++ task" if spec.language == "cpp" else "no task takes that language"
    raise TaskError(f"spec.language: {spec.language}: {why}")


def _python(solution: Solution, parts: Parts, task: Task, made: Convention) -> str:
    spec = solution.spec
    if not spec.file.endswith(".py"):
        raise TaskError(f"spec.entry_point: {spec.file} is no Python file")
    text = parts[spec.file]
    if closure(spec.file, parts) != [spec.file] or _clashes(text, task.entry_point, spec.function):
        text = joined_python(spec.file, spec.function, parts)
    return python_program(text, spec.function, task, made, returns=not spec.destination_passing_style)


def _clashes(text: str, entry_point: str, symbol: str) -> bool:
    """Whether a new function of the entry point's name would change what the module does."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return False
    names = {entry_point, "_solution", "_put"}
    used_names = {node.id for node in nodes if isinstance(node, ast.Name)}
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)} - {symbol}
    return bool(names & (used_names | defined))
