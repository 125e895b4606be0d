"""FlashInfer-Bench solutions become programs of a task, and a task's programs become solutions."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from small_dataset import ROWS, rows_workload, write_dataset
from tiny_task import write_task

from state.program import Program
from state.verdict import Passed
from tasks.flashinfer.adapters import cpp_solution, cuda_program, cuda_solution, python_solution
from tasks.flashinfer.convention import convention
from tasks.joining import PACKAGE
from tasks.local import LocalEvaluator
from tasks.submissions import read_programs
from tasks.task import Task, TaskError, find_task

SCALE = "def scaled(x, shift, scale):\n    return x * scale + shift\n"
RUN = "def run(x, shift, scale):\n    y = scaled(x, shift, scale)\n    return y, y.amax(-1)\n"
GO = "def go(x, shift, scale, y, largest):\n    y.copy_(scaled(x, shift, scale))\n    largest.copy_(y.amax(-1))\n"
RETURNS = f"import torch\n\n{SCALE}\n{RUN}"
NAMED = RETURNS.replace("return y, y.amax(-1)", "return {'largest': y.amax(-1), 'y': y}")
SEVERAL = {"main.py": f"from .parts.scale import scaled\n\n{RUN}", "parts/__init__.py": "", "parts/scale.py": SCALE}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    finders, names = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = finders
    for name in {name for name in sys.modules if name.startswith((PACKAGE, "exported"))} - names:
        del sys.modules[name]


@pytest.fixture
def task(tmp_path: Path) -> Task:
    root = write_dataset(
        tmp_path / "dataset", ROWS, [rows_workload("aaaaaaaa", 6), rows_workload("bbbbbbbb", 3, 1, 2.0)]
    )
    return find_task(f"flashinfer:{root}:{ROWS['name']}")


def solution(folder: Path, files: dict[str, str], entry: str = "main.py::run", **changes: Any) -> Path:
    spec = {"language": "python", "target_hardware": ["cpu"], "entry_point": entry, "dependencies": [],
            "destination_passing_style": False} | changes.pop("spec", {})  # fmt: skip
    sources = [{"path": path, "content": text or "\n"} for path, text in files.items()]
    plain = {"name": "mine", "definition": ROWS["name"], "author": "somebody", "spec": spec,
             "sources": sources} | changes  # fmt: skip
    file = folder / "solution.json"
    file.write_text(json.dumps(plain))
    return file


def loaded(text: str, file: Path) -> ModuleType:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(f"exported_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("sources", "entry", "spec"),
    [
        ({"main.py": RETURNS}, "main.py::run", {}),
        ({"main.py": NAMED}, "main.py::run", {}),
        ({"main.py": f"{SCALE}\n{GO}"}, "main.py::go", {"destination_passing_style": True}),
        (SEVERAL, "main.py::run", {}),
        ({"main.py": RETURNS + "\nagain = run\n"}, "main.py::run", {}),
    ],
)  # fmt: skip
def test_a_python_solution_runs_under_the_tasks_convention(
    task: Task, tmp_path: Path, sources: dict[str, str], entry: str, spec: dict[str, Any]
) -> None:
    [(name, program)] = read_programs(solution(tmp_path, sources, entry, spec=spec), task.narrowed("python"))
    assert name == "solution.json" and program.language == "python"
    x, y, largest = torch.randn(6, 8), torch.full((6, 8), torch.nan), torch.full((6,), torch.nan)
    loaded(program.source, tmp_path / "program.py").run(x, y, largest, 6, 3, 0.5)
    assert torch.equal(y, x * 0.5 + 3) and torch.equal(largest, y.amax(-1))


def test_a_solution_passes_the_evaluator(task: Task, tmp_path: Path) -> None:
    narrowed = task.narrowed("python")
    [(_, program)] = read_programs(solution(tmp_path, SEVERAL), narrowed)
    evaluator = LocalEvaluator(narrowed, threads=1, rounds=2)
    try:
        verdict = evaluator.evaluate(program)
    finally:
        evaluator.close()
    assert isinstance(verdict, Passed), verdict


def test_outputs_of_another_shape_are_not_spread_over_the_tasks_outputs(task: Task, tmp_path: Path) -> None:
    text = "def run(x, shift, scale):\n    y = x * scale + shift\n    return y, y.amax()\n"
    [(_, program)] = read_programs(solution(tmp_path, {"main.py": text}), task.narrowed("python"))
    run = loaded(program.source, tmp_path / "program.py").run
    with pytest.raises(ValueError, match="largest: "):
        run(torch.randn(6, 8), torch.empty(6, 8), torch.empty(6), 6, 3, 0.5)


def test_a_solution_that_uses_triton_is_a_triton_program(task: Task, tmp_path: Path) -> None:
    for spec in ({"language": "triton"}, {}):
        file = solution(tmp_path, {"main.py": "import triton\n" + RETURNS}, spec=spec)
        assert read_programs(file, task.narrowed("triton"))[0][1].language == "triton"
        with pytest.raises(TaskError, match="a triton program; here task scaled_rows_w8 takes python"):
            read_programs(file, task.narrowed("python"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"definition": "other"}, "it is for other, not for task scaled_rows_w8"),
        ({"spec": {"language": "tilelang"}}, "tilelang: no task takes that language"),
        ({"spec": {"language": "cpp"}}, "cpp: its bindings are not those"),
        ({"spec": {"language": "cuda"}}, "returns its outputs cannot be adapted"),
        ({"spec": {"language": "rust"}}, r"spec\.language"),
        ({"spec": {"entry_point": "main.py"}}, "::|two parts|entry point"),
        ({"spec": {"entry_point": "other.py::run"}}, "other.py"),
        ({"sources": [{"path": "../main.py", "content": "x"}]}, "main.py"),
        ({"sources": []}, "sources"),
    ],
)
def test_a_solution_that_cannot_be_a_program_is_refused_with_the_reason(
    task: Task, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(TaskError, match=rf"solution\.json: .*({reason})"):
        read_programs(solution(tmp_path, {"main.py": RETURNS}, **changes), task)


def test_in_a_folder_solutions_count_and_other_json_does_not(task: Task, tmp_path: Path) -> None:
    folder = tmp_path / "solutions"
    folder.mkdir()
    solution(folder, {"main.py": RETURNS})
    (folder / "result.json").write_text("{}")
    assert [name for name, _ in read_programs(folder, task.narrowed("python"))] == ["solution.json"]


TVM = """
#include "rows.h"
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
void scaled(tvm::ffi::TensorView x, int64_t shift, double scale, tvm::ffi::TensorView y, tvm::ffi::TensorView largest) {
    WIDTH;
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, scaled);
"""
TORCH = """
#include "rows.h"
#include <torch/extension.h>
void scaled(torch::Tensor x, int64_t shift, double scale, torch::Tensor y, torch::Tensor largest) { WIDTH; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &scaled, "scales rows"); }
"""


def test_cuda_sources_are_joined_and_exported_under_the_tasks_convention(task: Task, tmp_path: Path) -> None:
    spec = {"language": "cuda", "destination_passing_style": True}
    file = solution(tmp_path, {"rows.h": "#define WIDTH 8\n", "k.cu": TVM}, "k.cu::run", spec=spec)
    [(_, program)] = read_programs(file, task.narrowed("cuda"))
    assert program.language == "cuda" and "#define WIDTH 8" in program.source and '#include "' not in program.source
    assert program.source.count("TVM_FFI_DLL_EXPORT_TYPED_FUNC") == 1
    assert (
        "run_adapter(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView largest, " in program.source
    )
    assert "scaled(x, shift, scale, y, largest);" in program.source


def test_a_torch_binding_gets_a_second_definition(task: Task, tmp_path: Path) -> None:
    spec = {"language": "cuda", "destination_passing_style": True, "binding": "torch"}
    file = solution(tmp_path, {"rows.h": "#define WIDTH 8\n", "k.cu": TORCH}, "k.cu::run", spec=spec)
    [(_, program)] = read_programs(file, task.narrowed("cuda"))
    assert 'm.def("run_own", &scaled, "scales rows")' in program.source
    assert 'm.def("run", &run_adapter)' in program.source
    assert "run_adapter(torch::Tensor x, torch::Tensor y, torch::Tensor largest, " in program.source
    assert 'm.def("ksearch_solution", &' in cuda_solution(program.source, task, convention(task))


def test_cuda_that_exports_nothing_by_that_name_is_refused(task: Task, tmp_path: Path) -> None:
    spec = {"language": "cuda", "destination_passing_style": True}
    with pytest.raises(TaskError, match="other: the source does not export it"):
        read_programs(solution(tmp_path, {"k.cu": TVM}, "k.cu::other", spec=spec), task.narrowed("cuda"))


def test_an_exported_python_program_computes_what_the_definition_says(task: Task, tmp_path: Path) -> None:
    package = tmp_path / "exported"
    package.mkdir()
    body = "    assert (rows, shift) == (5, 2)\n    y.copy_(x * scale + shift)\n    largest.copy_(y.amax(-1))\n"
    (package / "kernel.py").write_text(f"def run(x, y, largest, rows, shift, scale):\n{body}")
    (package / "main.py").write_text(python_solution(task, convention(task)))
    space: dict[str, Any] = {}
    exec(ROWS["reference"], space)
    x, y, largest = torch.randn(5, 8), torch.empty(5, 8), torch.empty(5)
    sys.path.insert(0, str(tmp_path))
    try:
        importlib.import_module("exported.main").run(x, 2, 0.5, y, largest)
    finally:
        sys.path.remove(str(tmp_path))
    for got, want in zip((y, largest), space["run"](x, 2, 0.5), strict=True):
        assert torch.equal(got, want)


CPP = """
#include <cstdint>
extern "C" void run(const float *x, float *y, float *largest, int64_t rows, int64_t shift, double scale) {
    for (int64_t i = 0; i < rows; i++) {
        largest[i] = -1e30f;
        for (int64_t j = 8 * i; j < 8 * i + 8; j++) {
            y[j] = x[j] * static_cast<float>(scale) + static_cast<float>(shift);
            largest[i] = y[j] > largest[i] ? y[j] : largest[i];
        }
    }
}
"""


def test_exported_cpp_and_adapted_exports_compile_and_run(task: Task, tmp_path: Path) -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed (extra cuda)")
    made = convention(task)
    exported = cpp_solution(CPP, task, made)
    adapted = cuda_program(exported, "ksearch_solution", task, made)  # and back: as it were a solution of somebody's
    x = torch.randn(5, 8)
    for text, name, order in ((exported, "ksearch_solution", "solution"), (adapted, "run", "task")):
        if order == "task":
            text = text.replace('extern "C" void run(', 'extern "C" void own(').replace(" run(static", " own(static")
        library = built(text, tmp_path / f"{order}.cpp", tvm_ffi)
        y, largest = torch.empty(5, 8), torch.empty(5)
        tensors = [tvm_ffi.from_dlpack(tensor) for tensor in (x, y, largest)]
        function = getattr(tvm_ffi.load_module(str(library)), name)
        function(tensors[0], 2, 0.5, *tensors[1:]) if order == "solution" else function(*tensors, 5, 2, 0.5)
        assert torch.allclose(y, x * 0.5 + 2) and torch.equal(largest, y.amax(-1))


def built(text: str, file: Path, tvm_ffi: Any) -> Path:
    file.write_text(text)
    library = file.with_suffix(".so")
    root = Path(tvm_ffi.__file__).parent
    flags = ["-std=c++17", "-shared", "-fPIC", f"-I{root / 'include'}", f"-I{root / '3rdparty/dlpack/include'}"]
    done = subprocess.run(["g++", *flags, str(file), "-o", str(library), f"-L{root / 'lib'}", "-ltvm_ffi"],
                          capture_output=True, text=True, env=os.environ)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return library


def test_a_cuda_program_gets_an_export_that_takes_its_dims_from_the_tensors(task: Task) -> None:
    text = "static void go() {}\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(run, go);\n"
    exported = cuda_solution(text, task, convention(task))
    assert "TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, go);" in exported and "(ksearch_solution, " in exported
    assert "go(x, y, largest, x.size(0), static_cast<int64_t>(shift), static_cast<double>(scale));" in exported


def test_a_task_of_another_origin_has_a_definition_that_is_made_of_it(tmp_path: Path) -> None:
    made = convention(write_task(tmp_path / "task"))
    assert made.derived and made.inputs == ["x", "s"] and made.outputs == ["y", "positive"]
    assert made.extents == {"m": ("x", 0, 1), "n": ("x", 1, 1)}
    run = loaded(made.definition.reference, tmp_path / "derived.py").run
    y, positive = run(torch.ones(2, 3), torch.tensor([1.0, 2.0]))
    assert y.tolist() == [[1.0] * 3, [2.0] * 3] and positive.tolist() == [3, 3]


def test_a_task_whose_reference_needs_more_files_has_no_definition(task: Task) -> None:
    odd = task.model_copy(update={"files": ("definition_reference.py",)})
    with pytest.raises(TaskError, match="needs further files"):
        convention(odd)


def test_a_program_that_is_read_keeps_its_id(task: Task, tmp_path: Path) -> None:
    file = solution(tmp_path, SEVERAL)
    [(_, first)] = read_programs(file, task.narrowed("python"))
    assert read_programs(file, task.narrowed("python"))[0][1].id == first.id and isinstance(first, Program)
