"""A task folder becomes a Task, or an error that names the file and the key."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fakes import SCAFFOLD

from state.program import Language, language_of
from tasks.task import Device, Task, TaskError, TensorSpec, find_task, load_task, shipped


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the scaffold, to be spoiled."""
    return Path(shutil.copytree(SCAFFOLD, tmp_path / "mine"))


def change(folder: Path, old: str, new: str, file: str = "task.toml") -> None:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))


def test_the_scaffold_is_a_task() -> None:
    task = load_task(SCAFFOLD)
    assert task.name == "my_kernel"
    assert [workload.name for workload in task.workloads] == ["r256_c1024", "r64_c8192", "r2048_c384"]


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_task_loads_under_its_own_name(name: str) -> None:
    task = find_task(name)
    assert task.name == name
    assert len(task.workloads) >= 3


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("entry_point", "entrypoint", "task.toml: entry_point: Field required"),
        ("atol = 1e-3", "atol = -1.0", "task.toml: tolerance.atol: "),
        ("atol = 1e-3", "absolute = 1.0", "task.toml: tolerance.absolute: "),
        ("call_s = 5.0", "call_s = 0", "task.toml: limits.call_s: "),
        ('languages = ["cpp"]', 'flops = [2, "depth"]\nlanguages = ["cpp"]', "flops: 'depth' is neither a number nor"),
        ('languages = ["cpp"]', 'languages = ["rust"]', "task.toml: languages.0: "),
        ('dtype = "float32"', 'dtype = "complex64"', "task.toml: inputs.0.dtype: "),
        ('name = "x"', 'name = "2x"', "task.toml: inputs.0.name: "),
        ('name = "my_kernel"', 'name = "../up"', "task.toml: name: "),
        ('name = "my_kernel"', 'folder = "/"\nname = "my_kernel"', "task.toml: folder: unknown key"),
        ('name = "y"', 'name = "x"', "the name 'x' is used twice"),
        ('name = "y"', 'name = "rows"', "the name 'rows' is used twice"),
        ('name = "r64_c8192"', 'name = "r256_c1024"', "two workloads are named 'r256_c1024'"),
        ('name = "r333_c1001"', 'name = "r256_c1024"', "two workloads are named 'r256_c1024'"),
        ("dims = { rows = 64, columns = 8192 }", "dims = { rows = 64 }", "workload 'r64_c8192' must give exactly"),
        ("dims = { rows = 333, columns = 1001 }", "dims = { rows = 333, columns = 1001, k = 1 }",
         "workload 'r333_c1001' must give exactly"),
        ("dims = { rows = 64, columns = 8192 }", 'dims = { rows = "x", columns = 8192 }',
         "task.toml: workloads.1.dims.rows: "),
        ('shape = ["rows"]', 'shape = ["row"]', "out in workload 'r256_c1024': extent 'row' is neither"),
        ('shape = ["rows"]', 'shape = ["rows/7"]', "out in workload 'r256_c1024': extent 'rows/7' is not whole"),
        ('shape = ["rows"]', 'shape = ["rows * 2"]', "extent 'rows * 2' is neither"),
        ('columns = 8192 }', 'columns = 8192 }\ndevice = "tpu"', "task.toml: workloads.1.device: "),
        ("cpp = ", "fortran = ", "task.toml: notes.fortran"),
        ('baselines = ["eager", "cdist"]', "baselines = []", "task.toml: baselines: "),
        ('baselines = ["eager", "cdist"]', 'baselines = ["fused"]', "reference.py: fused: not defined"),
        ("[tolerance]", "[tolerance", "task.toml: not valid TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_file_and_key(folder: Path, old: str, new: str, problem: str) -> None:
    change(folder, old, new)
    with pytest.raises(TaskError) as error:
        load_task(folder)
    assert problem in str(error.value)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize("dims", ["{ rows = 0, columns = 8192 }", "{ rows = -64, columns = 8192 }"])
def test_a_dimension_is_a_positive_number(folder: Path, dims: str) -> None:
    change(folder, "{ rows = 64, columns = 8192 }", dims)
    with pytest.raises(TaskError, match=r"task\.toml: .*rows"):
        load_task(folder)


def test_every_wrong_key_is_reported_at_once(folder: Path) -> None:
    change(folder, "atol = 1e-3", "atol = -1.0")
    change(folder, "call_s = 5.0", "call_s = 0")
    with pytest.raises(TaskError) as error:
        load_task(folder)
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize("function", ["make_inputs", "reference", "cdist"])
def test_a_function_that_is_missing_is_named(folder: Path, function: str) -> None:
    change(folder, f"def {function}(", f"def {function}_(", file="reference.py")
    with pytest.raises(TaskError, match=rf"reference\.py: {function}: not defined"):
        load_task(folder)


def test_a_baseline_may_be_an_assigned_function(folder: Path) -> None:
    change(folder, "def cdist(", "cdist = eager\n\n\ndef other(", file="reference.py")
    assert load_task(folder).baselines == ("eager", "cdist")


def test_a_folder_without_a_file_names_the_file(folder: Path) -> None:
    (folder / "reference.py").unlink()
    with pytest.raises(TaskError, match=r"mine/reference\.py: cannot be read"):
        load_task(folder)
    (folder / "task.toml").unlink()
    with pytest.raises(TaskError, match=r"mine/task\.toml: cannot be read"):
        load_task(folder)
    with pytest.raises(TaskError, match=r"nowhere/task\.toml: cannot be read"):
        load_task(folder / "nowhere")


@pytest.mark.parametrize("file", ["task.toml", "reference.py"])
def test_a_file_that_is_no_text_is_named(folder: Path, file: str) -> None:
    (folder / file).write_bytes(b"\xff\xfe\x00binary")
    with pytest.raises(TaskError, match=file):
        load_task(folder)


def test_a_task_is_found_by_name_or_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_task(str(folder)) == load_task(folder)
    monkeypatch.chdir(folder.parent)
    assert find_task("mine") == find_task("./mine") == load_task(folder)


def test_an_unknown_task_lists_what_there_is() -> None:
    with pytest.raises(TaskError) as error:
        find_task("int9_gemm")
    assert "int9_gemm" in str(error.value)
    assert all(name in str(error.value) for name in shipped())
    assert "ksearch new" in str(error.value)


def test_the_prototype_lists_inputs_outputs_and_dimensions() -> None:
    assert load_task(SCAFFOLD).prototype() == (
        'extern "C" void my_kernel(const float *x, const float *y, float *out, int64_t rows, int64_t columns);'
    )


def test_the_prototype_follows_the_language() -> None:
    task = load_task(SCAFFOLD)
    triton = task.model_copy(update={"languages": ("triton",)})
    assert triton.prototype() == (
        "def my_kernel(x, y, out, rows, columns):  # inputs: x [rows, columns] float32, y [rows, columns] float32; "
        "outputs: out [rows] float32; rows, columns: int"
    )
    assert task.model_copy(update={"languages": ("cuda",)}).prototype() == (
        "void my_kernel(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView out, int64_t rows, "
        "int64_t columns);\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(my_kernel, my_kernel);"
    )


def on_devices(folder: Path) -> Task:
    """The scaffold in every language: r64_c8192 for a GPU, r2048_c384 for a CPU, its held-out one for a GPU."""
    change(folder, '["cpp"]', '["cpp", "python", "triton", "cuda"]\ncuda_baselines = ["eager_too"]')
    change(folder, "columns = 8192 }", 'columns = 8192 }\ndevice = "cuda"')
    change(folder, "columns = 384 }", 'columns = 384 }\ndevice = "cpu"')
    change(folder, "columns = 1001 }", 'columns = 1001 }\ndevice = "cuda"')
    change(folder, "def eager(", "eager_too = None\n\n\ndef eager(", file="reference.py")
    return load_task(folder)


@pytest.mark.parametrize(
    ("language", "device", "workloads", "held_out", "baselines"),
    [
        (None, "cpu", ["r256_c1024", "r2048_c384"], 0, 2),
        ("cpp", "cuda", ["r256_c1024", "r2048_c384"], 0, 2),
        ("python", "cpu", ["r256_c1024", "r2048_c384"], 0, 2),
        ("python", "cuda", ["r256_c1024", "r64_c8192"], 1, 3),
        ("triton", "cpu", ["r256_c1024", "r64_c8192"], 1, 3),
        ("cuda", "cpu", ["r256_c1024", "r64_c8192"], 1, 3),
    ],
)
def test_a_narrowed_task_keeps_what_its_language_can_run(
    folder: Path, language: str | None, device: Device, workloads: list[str], held_out: int, baselines: int
) -> None:
    whole = on_devices(folder)
    task = whole.narrowed(language, device)
    assert task.languages == (language or "cpp",)
    assert [load.name for load in task.workloads] == workloads
    assert (len(task.held_out), len(task.baselines), task.cuda_baselines) == (held_out, baselines, ())
    assert task.playbook == folder / "playbook" / (language or "cpp")
    assert task.hash == whole.hash
    assert task.narrowed(task.languages[0], device) == task


def test_a_task_that_has_nothing_for_a_language_says_so(folder: Path) -> None:
    with pytest.raises(TaskError, match=r"takes programs in cpp, not in 'cuda': say --language"):
        load_task(folder).narrowed("cuda")
    for columns in (1024, 8192, 384):
        change(folder, f"columns = {columns} }}", f'columns = {columns} }}\ndevice = "cuda"')
    with pytest.raises(TaskError, match=r"task\.toml: workloads: none is for cpu, where cpp programs run"):
        load_task(folder).narrowed()


def test_operations_are_the_product_of_what_the_task_names(folder: Path) -> None:
    assert load_task(folder).operations({"rows": 8, "columns": 16}) is None
    change(folder, "baselines =", 'flops = [3, "rows", "columns", 0.5]\nbaselines =')
    assert load_task(folder).operations({"rows": 8, "columns": 16}) == 192.0


@pytest.mark.parametrize(
    ("name", "source", "allowed", "language"),
    [
        ("a.cpp", "import triton", ["cpp", "triton"], "cpp"),
        ("a.cu", "", ["cpp", "cuda"], "cuda"),
        ("a.py", "import torch\nimport triton.language as tl\n", ["python", "triton"], "triton"),
        ("a.py", "def f():\n    from triton import jit\n", ["python", "triton"], "triton"),
        ("a.py", "import torch  # no import triton\n", ["python", "triton"], "python"),
        ("a.py", "import tritonic", ["python", "triton"], "python"),
        ("a.py", "import triton", ["python"], None),
        ("a.py", "import torch", ["triton"], None),
        ("a.cu", "", ["cpp"], None),
        ("a.rs", "", ["cpp", "python", "triton", "cuda"], None),
    ],
)
def test_a_files_language_follows_from_its_name_and_text(
    name: str, source: str, allowed: list[Language], language: Language | None
) -> None:
    assert language_of(name, source, allowed) == language


def test_half_precision_arrives_as_its_bits() -> None:
    task = load_task(SCAFFOLD)
    tensors = [TensorSpec(name=dtype[0] + dtype[-2:], dtype=dtype, shape=()) for dtype in ("bfloat16", "int8")]
    half = Task.model_validate({**dict(task), "inputs": tensors})
    assert "(const uint16_t *b16, const int8_t *it8, float *out," in half.prototype()


@pytest.mark.parametrize(
    ("shape", "extents"),
    [((), ()), ((4, "m"), (4, 96)), (("m/32", "k"), (3, 64)), (("m/1",), (96,))],
)
def test_extents_are_numbers_dimensions_or_exact_fractions(shape: tuple[int | str, ...], extents: tuple[int]) -> None:
    assert TensorSpec(name="x", dtype="int8", shape=shape).extents({"m": 96, "k": 64}) == extents


@pytest.mark.parametrize("extent", ["n", "m/5", "m/0", "m/", "/2", "m//2", "m*2", "m/k", ""])
def test_other_extents_are_refused(extent: str) -> None:
    with pytest.raises(ValueError, match="extent"):
        TensorSpec(name="x", dtype="int8", shape=(extent,)).extents({"m": 96, "k": 64})


def test_the_hash_follows_both_files(folder: Path) -> None:
    hashes = {load_task(folder).hash, load_task(SCAFFOLD).hash}
    assert len(hashes) == 1
    change(folder, "atol = 1e-3", "atol = 2e-3")
    hashes.add(load_task(folder).hash)
    change(folder, "torch.randn", "torch.rand", file="reference.py")
    hashes.add(load_task(folder).hash)
    assert len(hashes) == 3
