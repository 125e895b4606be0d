"""A definition of a FlashInfer-Bench data set becomes an ordinary task; what is wrong with it is named."""

from __future__ import annotations

import copy
import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from small_dataset import BLOB, PAGED, ROWS, int32, paged_workload, rows_workload, write_blob, write_dataset

from state.program import Program
from state.verdict import Passed, WrongResult
from tasks.flashinfer import data
from tasks.local import LocalEvaluator
from tasks.sources.flashinfer_reference import drawn, safetensor
from tasks.task import Task, TaskError, find_task

Change = dict[str, Any]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("FIB_DATASET_PATH", raising=False)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "dataset"


def rows_task(root: Path, *loads: dict[str, Any]) -> Task:
    write_dataset(root, ROWS, list(loads) or [rows_workload("aaaaaaaa-1", 5), rows_workload("bbbbbbbb-2", 5, 1, 2.0)])
    return find_task(f"flashinfer:{root}:{ROWS['name']}")


def paged_task(root: Path, *loads: dict[str, Any]) -> Task:
    write_dataset(root, PAGED, list(loads) or [paged_workload("cccccccc-1"), paged_workload("dddddddd-2")])
    return find_task(f"flashinfer:{root}:{PAGED['name']}")


def changed(definition: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(definition), **changes}


def reference(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("made_reference", folder / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inputs_of(task: Task, name: str, seed: int = 0, folder: Path | None = None) -> dict[str, torch.Tensor]:
    load = next(load for load in task.workloads if load.name == name)
    module = reference(folder or task.folder)
    made: dict[str, torch.Tensor] = module.make_inputs(
        torch.Generator().manual_seed(seed), workload=name, **load.dims, **load.params
    )
    return made


def test_axes_become_dims_and_scalars_become_dims_or_params(root: Path) -> None:
    task = rows_task(root)
    assert task.dims == ("rows", "shift") and task.params == ("scale",)
    assert [tensor.shape for tensor in (*task.inputs, *task.outputs)] == [("rows", 8), ("rows", 8), ("rows",)]
    assert [load.dims["shift"] for load in task.workloads] == [3, 1]
    assert [load.params for load in task.workloads] == [{"scale": 0.5}, {"scale": 2.0}]
    assert task.tolerance.model_dump() == {"atol": 0.01, "rtol": 0.01, "matched": 1.0, "row_norm": None}
    assert "def run(x, shift, scale)" in task.specification and "What is scaled." in task.specification
    assert task.provenance == "" and "scaled_rows_w8" in task.origin


@pytest.mark.parametrize("change", [{"op_type": "moe"}, {"name": "moe_fp8_block_scale_x"}])
def test_a_share_of_the_elements_may_differ_in_moe_and_in_low_bits(root: Path, change: Change) -> None:
    definition = changed(ROWS, **change)
    write_dataset(root, definition, [rows_workload("a", 4)])
    assert find_task(f"flashinfer:{root}:{definition['name']}").tolerance.matched == 0.95


def test_some_workloads_can_be_asked_for_and_others_are_held_out(root: Path) -> None:
    write_dataset(root, ROWS, [rows_workload(f"{number:08d}", number) for number in range(1, 10)])
    task = find_task(f"flashinfer:{root}:{ROWS['name']}@3")
    assert [load.dims["rows"] for load in task.workloads] == [2, 5, 8]
    assert [load.dims["rows"] for load in task.held_out] == [3, 6, 9]
    assert find_task(f"flashinfer:{root}:{ROWS['name']}@50").held_out == ()
    for count in ("0", "x", ""):
        with pytest.raises(TaskError, match="after @ comes the number of workloads"):
            find_task(f"flashinfer:{root}:{ROWS['name']}@{count}")


def test_the_data_set_is_where_the_environment_says(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = rows_task(root)
    monkeypatch.setenv("FIB_DATASET_PATH", str(root))
    assert find_task(f"flashinfer:{ROWS['name']}").hash == first.hash


def test_programs_are_judged_by_the_definitions_own_reference_with_each_workloads_scalars(root: Path) -> None:
    task = rows_task(root).narrowed("python")
    body = (
        "def run(x, y, largest, rows, shift, scale):\n    y.copy_(x * scale + {shift})\n    largest.copy_(y.amax(-1))\n"
    )
    evaluator = LocalEvaluator(task, threads=1, rounds=2)
    try:
        right = evaluator.evaluate(Program(language="python", source=body.format(shift="shift")))
        wrong = evaluator.evaluate(Program(language="python", source=body.format(shift=3)))
    finally:
        evaluator.close()
    assert isinstance(right, Passed), right
    assert {timing.baseline for timing in right.timings} == {"definition"}
    assert isinstance(wrong, WrongResult) and wrong.workload == "bbbbbbbb"


def test_tables_are_read_from_the_data_set_and_travel_with_the_task(root: Path, tmp_path: Path) -> None:
    pages = list(range(40, 20, -1))
    write_blob(root, qo_indptr=int32(0, 1, 2, 7), kv_indptr=int32(0, 5, 9, 20), kv_indices=int32(*pages))
    task = paged_task(root)
    assert task.provenance == ""
    elsewhere = tmp_path / "elsewhere"
    for name in task.carried:
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(task.folder / name, elsewhere / name)
    shutil.rmtree(root)
    made = inputs_of(task, "cccccccc", folder=elsewhere)
    assert made["kv_indptr"].tolist() == [0, 5, 9, 20] and made["kv_indices"].tolist() == pages
    assert made["kv_indices"].dtype == torch.int32 and made["cache"].dtype == torch.bfloat16
    sums = reference(elsewhere).reference(**made)[0]
    assert torch.equal(sums[0], made["cache"].float()[40 - torch.arange(5)].sum(0))


def test_missing_tables_are_made_up_and_said_to_be_synthetic(root: Path) -> None:
    task = paged_task(root)
    assert task.provenance == "synthetic page tables"
    made = inputs_of(task, "cccccccc")
    assert made["kv_indptr"][0] == 0 and made["kv_indptr"][-1] == 20 and made["qo_indptr"][-1] == 7
    pages, queries = made["kv_indptr"].diff(), made["qo_indptr"].diff()
    assert bool((queries >= 1).all()) and bool((pages >= queries).all())
    assert len(set(made["kv_indices"].tolist())) == 20 and int(made["kv_indices"].max()) < 50
    again = paged_task(root)
    assert again.hash == task.hash and again.folder == task.folder
    other = inputs_of(task, "dddddddd")
    assert not torch.equal(other["kv_indices"], made["kv_indices"])  # another workload, another table
    assert torch.equal(inputs_of(task, "cccccccc", seed=1)["kv_indices"], made["kv_indices"])
    assert not torch.equal(inputs_of(task, "cccccccc", seed=1)["cache"], made["cache"])


def test_every_made_up_sequence_has_as_many_pages_as_queries(root: Path) -> None:
    task = paged_task(root, *(paged_workload(f"{number:08d}", total_q=18) for number in range(6)))
    for load in task.workloads:
        made = inputs_of(task, load.name)
        assert bool((made["kv_indptr"].diff() >= made["qo_indptr"].diff()).all()) and made["qo_indptr"][-1] == 18


def test_a_pointer_of_git_lfs_is_no_blob(root: Path) -> None:
    (root / BLOB).parent.mkdir(parents=True)
    (root / BLOB).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert paged_task(root).provenance == "synthetic page tables"


def test_only_some_workloads_are_synthetic(root: Path) -> None:
    elsewhere = paged_workload("dddddddd-2")
    for name in ("qo_indptr", "kv_indptr", "kv_indices"):
        elsewhere["inputs"][name]["path"] = "./blob/not/there.safetensors"
    write_blob(root, qo_indptr=int32(0, 1, 2, 7), kv_indptr=int32(0, 5, 9, 20), kv_indices=int32(*range(20)))
    assert (
        paged_task(root, paged_workload("cccccccc-1"), elsewhere).provenance
        == "synthetic page tables (1 of 2 workloads)"
    )


def test_a_large_tensor_stays_in_the_data_set(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = changed(ROWS)
    load = rows_workload("eeeeeeee", 1 << 16)
    load["inputs"]["x"] = {"type": "safetensors", "path": BLOB, "tensor_key": "x"}
    x = torch.arange(8 << 16, dtype=torch.float32)
    write_blob(root, x=("F32", [1 << 16, 8], x.numpy().tobytes()))
    write_dataset(root, definition, [load])
    task = find_task(f"flashinfer:{root}:{ROWS['name']}")
    assert sum((task.folder / name).stat().st_size for name in task.carried) < 1 << 16
    assert torch.equal(inputs_of(task, "eeeeeeee")["x"].flatten(), x)
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(task.folder, elsewhere)
    (elsewhere / "dataset.txt").unlink()
    with pytest.raises(FileNotFoundError, match="set FIB_DATASET_PATH on this machine"):
        inputs_of(task, "eeeeeeee", folder=elsewhere)
    monkeypatch.setenv("FIB_DATASET_PATH", str(root))
    assert torch.equal(inputs_of(task, "eeeeeeee", folder=elsewhere)["x"].flatten(), x)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [(torch.float8_e4m3fn, -2, 2), (torch.int8, -128, 127), (torch.int32, -1024, 1023), (torch.bool, 0, 1)],
)
def test_random_inputs_have_the_ranges_of_flashinfer_bench(dtype: torch.dtype, low: int, high: int) -> None:
    values = drawn([20000], dtype, torch.Generator().manual_seed(1)).double()
    assert (float(values.min()), float(values.max())) == (low, high)


def test_a_definition_without_a_reference_is_refused(root: Path) -> None:
    definition = changed(ROWS)
    del definition["reference"]
    write_dataset(root, definition, [rows_workload("a", 4)])
    with pytest.raises(TaskError, match=r"scaled_rows_w8\.json: reference: missing"):
        find_task(f"flashinfer:{root}:scaled_rows_w8")


def test_a_definition_without_a_reference_can_be_a_shipped_task(root: Path) -> None:
    definition = changed(ROWS, name="softmax")
    del definition["reference"]
    write_dataset(root, definition, [rows_workload("a", 4)])
    assert find_task(f"flashinfer:{root}:softmax") == find_task("softmax")


BAD_DEFINITIONS: list[tuple[Change, str]] = [
    ({"reference": "def run(x:\n"}, "reference: not valid Python|valid Python code"),
    ({"reference": "def walk(x): ...\n"}, "run"),
    ({"axes": {"rows": {"type": "maybe"}}}, "axes"),
    ({"axes": {"width": {"type": "const", "value": -8}, "rows": {"type": "var"}}}, "axes"),
    ({"axes": {"rows": {"type": "var"}}}, "width"),
    ({"inputs": {"x": {"shape": ["rows"], "dtype": "float31"}}}, r"inputs\.x\.dtype"),
    ({"inputs": {"y": {"shape": ["rows"], "dtype": "float32"}}}, "y|overlap"),
    ({"constraints": ["rows =="]}, "onstraint"),
    ({"op_type": ""}, "op_type"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_DEFINITIONS)
def test_a_definition_that_is_none_is_refused_with_file_and_key(root: Path, change: Change, reason: str) -> None:
    write_dataset(root, {**changed(ROWS, **change), "op_type": "toy"}, [rows_workload("a", 4)])
    file = root / "definitions" / "toy" / "scaled_rows_w8.json"
    file.write_text(json.dumps(changed(ROWS, **change)))
    with pytest.raises(TaskError, match=rf"scaled_rows_w8\.json: .*({reason})"):
        find_task(f"flashinfer:{root}:scaled_rows_w8")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"op_type": "sampling"}, "by their distribution"),
        ({"inputs": {"x": {"shape": ["rows"], "dtype": "float4_e2m1"}}}, "x: dtype: float4_e2m1"),
        ({"inputs": {"x y": {"shape": ["rows"], "dtype": "int8"}}}, "cannot name an argument"),
        ({"inputs": {"s": {"shape": None, "dtype": "int8"}}}, "none is a tensor"),
    ],
)
def test_what_a_task_cannot_express_is_refused(root: Path, change: Change, reason: str) -> None:
    write_dataset(root, changed(ROWS, **change), [rows_workload("a", 4)])
    with pytest.raises(TaskError, match=reason):
        find_task(f"flashinfer:{root}:scaled_rows_w8")


def test_a_definition_file_that_is_no_json_is_named(root: Path) -> None:
    write_dataset(root, ROWS, [rows_workload("a", 4)])
    (root / "definitions" / "toy" / "scaled_rows_w8.json").write_text("{")
    with pytest.raises(TaskError, match=r"scaled_rows_w8\.json: not valid JSON"):
        find_task(f"flashinfer:{root}:scaled_rows_w8")


def test_a_broken_line_is_named_by_file_and_number(root: Path) -> None:
    write_dataset(root, ROWS, [rows_workload("a", 4)])
    with (root / "workloads" / "toy" / "scaled_rows_w8.jsonl").open("a") as file:
        file.write('\n{"definition": "scaled_rows_w8", "workload": {"axes"\n')
    with pytest.raises(TaskError, match=r"scaled_rows_w8\.jsonl:3: not valid JSON"):
        find_task(f"flashinfer:{root}:scaled_rows_w8")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"axes": {}}, r"jsonl:1: workload\.axes\.rows: missing"),
        ({"axes": {"rows": -1}}, r"jsonl:1: axes\.rows"),
        ({"inputs": {}}, r"jsonl:1: workload\.inputs\.shift: a scalar needs a value"),
        ({"inputs": {"x": {"type": "scalar", "value": 1}}}, r"jsonl:1: workload\.inputs\.x: a scalar"),
        ({"inputs": {"x": {"type": "safetensors", "path": "blob/x", "tensor_key": "k"}}}, "blob/x: there is no .*'k'"),
        ({"uuid": ""}, r"jsonl:1: uuid"),
    ],
)  # fmt: skip
def test_a_workload_that_does_not_fit_is_named_by_line_and_key(root: Path, change: Change, reason: str) -> None:
    write_dataset(root, ROWS, [{**rows_workload("a", 4), **change}])
    with pytest.raises(TaskError, match=reason):
        find_task(f"flashinfer:{root}:scaled_rows_w8")


@pytest.mark.parametrize("shift", [-1, 0.5])
def test_a_whole_number_is_needed_where_the_definition_says_int(root: Path, shift: float) -> None:
    with pytest.raises(TaskError, match=r"inputs\.shift: .* no whole number"):
        rows_task(root, rows_workload("a", 4, shift=shift))


@pytest.mark.parametrize(
    ("axes", "tables", "reason"),
    [
        ({"batch_size": 4}, {}, "'len_indptr == batch_size \\+ 1' does not hold"),
        ({}, {"kv_indptr": int32(0, 5, 9, 19)}, "kv_indptr.* does not hold"),
        ({}, {"kv_indptr": int32(0, 5, 20)}, r"tables\.safetensors: kv_indptr: is int32 \[3\], not int32 \[4\]"),
        ({}, {"kv_indptr": ("I64", [4], bytes(32))}, "is int64"),
    ],
)
def test_axes_and_tables_that_contradict_the_definition_are_refused(
    root: Path, axes: dict[str, int], tables: Change, reason: str
) -> None:
    whole = {"qo_indptr": int32(0, 1, 2, 7), "kv_indptr": int32(0, 5, 9, 20), "kv_indices": int32(*range(20))}
    write_blob(root, **{**whole, **tables})
    with pytest.raises(TaskError, match=reason):
        paged_task(root, paged_workload("a", **axes))


def test_a_blob_without_the_tensor_or_cut_off_is_named(root: Path) -> None:
    write_blob(root, kv_indptr=int32(0, 5, 9, 20))
    with pytest.raises(TaskError, match=r"tables\.safetensors: qo_indptr: it has no 'qo_indptr'"):
        paged_task(root)
    (root / BLOB).write_bytes(b"\xff" * 40)
    with pytest.raises(TaskError, match=r"tables\.safetensors: qo_indptr: its header is longer"):
        paged_task(root)


def test_an_unknown_definition_lists_what_there_is(root: Path) -> None:
    write_dataset(root, ROWS, [])
    with pytest.raises(TaskError, match=r"no 'rows'\.json; there is scaled_rows_w8"):
        find_task(f"flashinfer:{root}:rows")
    with pytest.raises(TaskError, match="no workload of scaled_rows_w8"):
        find_task(f"flashinfer:{root}:scaled_rows_w8")
    with pytest.raises(TaskError, match="no FlashInfer-Bench data set"):
        find_task(f"flashinfer:{root / 'nowhere'}:rows")


PACKAGE_MISSING = data.package() is None
needs_package = pytest.mark.skipif(PACKAGE_MISSING, reason="flashinfer-bench is not installed (extra flashinfer)")


@needs_package
@pytest.mark.parametrize(("change", "_reason"), [({}, ""), *BAD_DEFINITIONS])
def test_our_reader_and_the_package_agree_on_definitions(change: Change, _reason: str) -> None:
    for plain in (changed(ROWS, **change), changed(PAGED, **change)):
        assert parsed(data.Definition, plain, data.package()) == parsed(data.Definition, plain, None)


@needs_package
@pytest.mark.parametrize("change", [{}, {"axes": {"rows": -1}}, {"inputs": {"x": {"type": "file"}}}, {"uuid": ""}])
def test_our_reader_and_the_package_agree_on_workloads(change: Change) -> None:
    for plain in ({**rows_workload("a", 4), **change}, {**paged_workload("b"), **change}):
        assert parsed(data.Workload, plain, data.package()) == parsed(data.Workload, plain, None)


def parsed(model: Any, plain: Change, theirs: ModuleType | None) -> Any:
    """The model, or that it was refused."""
    try:
        return data.parse_with(theirs, model, plain, "here")
    except TaskError:
        return "refused"


def test_safetensors_files_of_the_package_are_read(tmp_path: Path) -> None:
    writer = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    tensors = {"a": torch.randn(3, 5).bfloat16(), "b": torch.arange(7), "c": torch.randn(4).to(torch.float8_e5m2)}
    writer.save_file(tensors, tmp_path / "x.safetensors")
    for name, tensor in tensors.items():
        dtype, shape, contents = safetensor(tmp_path / "x.safetensors", name)
        assert (dtype, shape) == (str(tensor.dtype).removeprefix("torch."), list(tensor.shape))
        assert contents == bytes(tensor.view(torch.uint8).flatten().tolist())
