"""Every program of every playbook: it compiles or parses, and where it can run it is right, or wrong as expected."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
import torch
from fakes import SCAFFOLD

from state.program import SUFFIX
from tasks.compiler import find_compiler
from tasks.playbook import Params, load_playbook
from tasks.problem import Tensors
from tasks.task import LIBRARY, Task, load_task

FOLDERS = [SCAFFOLD / "playbook" / "cpp", *(p.parent for p in sorted(LIBRARY.glob("*/playbook/*/intents.toml")))]
WRONG = {("softmax", "no_maximum"), ("int8_gemm", "scale_first")}
"""Ideas that a playbook holds although their programs must fail."""
SHAPES = {
    "softmax": [(1, 1), (300, 130), (128, 781), (5, 1025), (3, 4999), (2, 12289), (2, 40000)],
    "int8_gemm": [(1, 128, 128), (16, 128, 256), (33, 256, 384), (97, 128, 1024), (130, 384, 640)],
}
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
LIMIT_S = 120


def of_language(*languages: str) -> pytest.MarkDecorator:
    """Runs a test for each playbook of these languages."""
    folders = [folder for folder in FOLDERS if folder.name in languages]
    return pytest.mark.parametrize("folder", folders, ids=lambda f: f"{f.parent.parent.name}-{f.name}")


def programs(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Intent, name and source of every variant, from the first program of the intent that it builds on."""
    book, first = load_playbook(folder), dict[str | None, Params]()
    for intent in book.intents:
        for attempt in range(1, len(intent.variants) + 1):
            params, source = book.program(intent, first.get(intent.requires, {}), attempt)
            if attempt == 1:
                first[intent.key] = params
            yield intent.key, f"{intent.key}_{attempt}", source


def narrowed(folder: Path) -> Task:
    return load_task(folder.parent.parent).narrowed(folder.name)


def imported(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def succeeds(command: list[str], name: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, f"{name}: {done.stderr[-3000:]}"


def all_succeed(command: list[str], folder: Path, scratch: Path) -> None:
    """The command compiles every program of a playbook; as many at a time as there are cores."""

    def compiles(name: str, source: str) -> None:
        file = scratch / f"{name}{SUFFIX[narrowed(folder).languages[0]]}"
        file.write_text(source)
        succeeds([*command, str(file)], name)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda program: compiles(*program[1:]), programs(folder)))


def fits(folder: Path, key: str, name: str, function: object, device: str) -> None:
    """The function is within the task's tolerance on every small shape, or outside of it on some if it is to fail."""
    task, right = narrowed(folder), True
    reference = imported(task.reference)
    for shape in SHAPES[task.name]:
        dims = dict(zip(task.dims, shape, strict=True))
        inputs: Tensors = reference.make_inputs(torch.Generator(device).manual_seed(7), **dims)
        expected = reference.reference(**inputs)
        out = torch.full_like(expected, float("nan"))
        function(*inputs.values(), out, *shape)  # type: ignore[operator]
        right &= torch.allclose(out, expected, atol=task.tolerance.atol, rtol=task.tolerance.rtol)
        assert right or (task.name, key) in WRONG, f"{name} on {dims}: {float((out - expected).abs().max())}"
    assert right == ((task.name, key) not in WRONG), name


@of_language("cpp")
def test_cpp_programs_compile(folder: Path, tmp_path: Path) -> None:
    compiler = find_compiler("native")
    all_succeed([compiler.path, *compiler.flags, "-fsyntax-only"], folder, tmp_path)


@of_language("python", "triton")
def test_python_programs_define_the_entry_point_with_its_arguments(folder: Path) -> None:
    task = narrowed(folder)
    names = [tensor.name for tensor in (*task.inputs, *task.outputs)] + list(task.dims)
    for _, name, source in programs(folder):
        defined = {node.name: node.args for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}
        assert [argument.arg for argument in defined[task.entry_point].args] == names, name


@of_language("python")
def test_python_programs_are_right(folder: Path, tmp_path: Path) -> None:
    for key, name, source in programs(folder):
        (tmp_path / f"{name}.py").write_text(source)
        fits(folder, key, name, getattr(imported(tmp_path / f"{name}.py"), narrowed(folder).entry_point), "cpu")


@pytest.mark.gpu
@of_language("triton")
@pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="needs a GPU, or TRITON_INTERPRET=1")
def test_triton_programs_are_right(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    for key, name, source in programs(folder):
        (tmp_path / f"{name}.py").write_text(source)
        function = getattr(imported(tmp_path / f"{name}.py"), narrowed(folder).entry_point)
        fits(folder, key, name, function, "cpu" if INTERPRETED else "cuda")


def nvcc(*more: str) -> list[str]:
    """A compiler command with tvm-ffi's headers; skips the test where it cannot be had."""
    found, package = shutil.which("nvcc"), importlib.util.find_spec("tvm_ffi")
    if found is None or package is None or package.origin is None:
        pytest.skip("needs nvcc and apache-tvm-ffi")
    root = Path(package.origin).parent
    return [found, "-arch=sm_90a", "-std=c++17", f"-I{root / 'include'}", f"-L{root / 'lib'}", *more]


@of_language("cuda")
def test_cuda_programs_compile(folder: Path, tmp_path: Path) -> None:
    all_succeed(nvcc("-cubin", "-Werror", "all-warnings", "--output-directory", str(tmp_path)), folder, tmp_path)


@pytest.mark.gpu
@of_language("cuda")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_programs_are_right(folder: Path, tmp_path: Path) -> None:
    command = nvcc("-shared", "-Xcompiler", "-fPIC", "-ltvm_ffi")
    tvm_ffi = pytest.importorskip("tvm_ffi")
    for key, name, source in programs(folder):
        library = tmp_path / f"{name}.so"
        (tmp_path / f"{name}.cu").write_text(source)
        succeeds([*command, "-o", str(library), str(tmp_path / f"{name}.cu")], name)
        fits(folder, key, name, getattr(tvm_ffi.load_module(str(library)), narrowed(folder).entry_point), "cuda")
