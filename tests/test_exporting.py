"""A run's best program in another project's form: only what was verified, and only what the other project reads."""

from __future__ import annotations

import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import SCAFFOLD, FakeServices, compiled, start
from small_dataset import ROWS, rows_workload, write_dataset
from vouched import VouchedEvaluator, receipt

from graph.cli import main
from state.program import Program
from state.verdict import Passed, WorkloadTiming
from tasks.flashinfer.data import package
from tasks.flashinfer.exported import texts
from tasks.measured import Measured
from tasks.submissions import read_programs
from tasks.task import Task, find_task

FORM = {"task": str(SCAFFOLD), "model": "playbook", "budget": 12}
SOURCE = """
def run(x, y, largest, rows, shift, scale):
    y.copy_(x * scale + shift)
    largest.copy_(y.amax(-1))
"""


def command(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


def written(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = write_dataset(tmp_path / "dataset", ROWS, [rows_workload("aaaa-1", 6), rows_workload("bbbb-2", 3, 1, 2.0)])
    return find_task(f"flashinfer:{root}:{ROWS['name']}")


@pytest.fixture
def measured(task: Task) -> Measured:
    program = Program(language="python", source=SOURCE)
    vouched = receipt(program.id, task.hash).model_copy(update={"hardware": "a processor", "versions": {"torch": "2"}})
    timings = tuple(WorkloadTiming(workload=load.name, latency_us=250.0, baseline_us=500.0, baseline="definition",
                                   noise=0.01) for load in task.workloads)  # fmt: skip
    passed = Passed(timings=timings, noise=0.01, receipt=vouched)
    return Measured(task, program, passed, vouched, "2024-05-06T07:08:09+00:00", "a remark")


def kept(measured: Measured, folder: Path) -> Path:
    for name, text in texts(measured).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_trace_for_each_workload_gives_latencies_in_milliseconds_and_no_error_that_is_not_known(
    measured: Measured, tmp_path: Path
) -> None:
    files = written(kept(measured, tmp_path / "out"))
    name = f"scaled_rows_w8_ksearch_{measured.program.id}"
    assert sorted(files) == [f"solutions/toy/scaled_rows_w8/{name}.json", f"traces/toy/scaled_rows_w8/{name}.jsonl"]
    solution = json.loads(files[f"solutions/toy/scaled_rows_w8/{name}.json"])
    assert solution["spec"]["destination_passing_style"] and solution["spec"]["target_hardware"] == ["a processor"]
    assert "J = 200.0" in solution["description"] and "a remark" in solution["description"]
    traces = [json.loads(line) for line in files[f"traces/toy/scaled_rows_w8/{name}.jsonl"].splitlines()]
    assert [trace["workload"]["uuid"] for trace in traces] == ["aaaa-1", "bbbb-2"]
    assert traces[1]["workload"]["inputs"]["scale"] == {"type": "scalar", "value": 2.0}
    for trace in traces:
        evaluation = trace["evaluation"]
        assert evaluation["performance"] == {"latency_ms": 0.25, "reference_latency_ms": 0.5, "speedup_factor": 2.0}
        assert math.isnan(float(evaluation["correctness"]["max_absolute_error"]))
        assert evaluation["environment"] == {"hardware": "a processor", "libs": {"torch": "2"}}
        assert evaluation["timestamp"] == measured.when and trace["solution"] == name


def test_an_exported_solution_runs_as_flashinfer_bench_runs_it(measured: Measured, tmp_path: Path) -> None:
    folder = kept(measured, tmp_path / "out")
    solution = json.loads(next(folder.rglob("solutions/**/*.json")).read_text())
    space = tmp_path / "import_me" / "exported_solution"
    for source in solution["sources"]:
        (space / source["path"]).parent.mkdir(parents=True, exist_ok=True)
        (space / source["path"]).write_text(source["content"])
    file, function = solution["spec"]["entry_point"].split("::")
    sys.path.insert(0, str(space.parent))
    try:
        run = getattr(importlib.import_module(f"{space.name}.{file.removesuffix('.py')}"), function)
    finally:
        sys.path.remove(str(space.parent))
    right: dict[str, Any] = {}
    exec(ROWS["reference"], right)
    x, y, largest = torch.randn(6, 8), torch.empty(6, 8), torch.empty(6)
    run(x, 3, 0.5, y, largest)
    for got, want in zip((y, largest), right["run"](x, 3, 0.5), strict=True):
        assert torch.equal(got, want)


def test_an_exported_solution_can_be_read_again(measured: Measured, tmp_path: Path) -> None:
    folder = kept(measured, tmp_path / "out")
    [(_, program)] = read_programs(next(folder.rglob("solutions/**/*.json")), measured.task.narrowed("python"))
    assert program.language == "python" and SOURCE.strip() in program.source


@pytest.mark.skipif(package() is None, reason="flashinfer-bench is not installed (extra flashinfer)")
def test_the_packages_own_models_and_builder_take_what_is_exported(measured: Measured, tmp_path: Path) -> None:
    from flashinfer_bench.compile.builders.python_builder import PythonBuilder
    from flashinfer_bench.data import Definition, TraceSet

    root = kept(measured, tmp_path / "dataset")
    found = TraceSet.from_path(str(root))
    assert list(found.definitions) == ["scaled_rows_w8"] and len(found.workloads["scaled_rows_w8"]) == 2
    [solution] = found.solutions["scaled_rows_w8"]
    traces = found.traces["scaled_rows_w8"]
    assert [trace.evaluation.performance.speedup_factor for trace in traces] == [2.0, 2.0]
    assert all(trace.is_successful() for trace in traces)
    assert all(math.isnan(trace.evaluation.correctness.max_absolute_error) for trace in traces)
    built = PythonBuilder().build(Definition.model_validate(ROWS), solution)
    x, y, largest = torch.randn(6, 8), torch.empty(6, 8), torch.empty(6)
    built(x, 3, 0.5, y, largest)
    built.cleanup()
    assert torch.equal(y, x * 0.5 + 3) and torch.equal(largest, y.amax(-1))


def test_the_command_writes_a_verified_best_with_a_definition_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    services = FakeServices(tmp_path / "k.db")
    services.evaluator = VouchedEvaluator(services.task)
    final = start(compiled(services), **FORM)
    asked = ("--format", "flashinfer-bench", "--out", tmp_path / "out", "--db", services.database)
    assert command("export", "last", *asked) == 0
    files = written(tmp_path / "out")
    assert {name.split("/")[0] for name in files} == {"definitions", "workloads", "solutions", "traces"}
    said = capsys.readouterr().out
    assert all(f"wrote {tmp_path / 'out' / name}" in said for name in files)
    solution = json.loads(next(text for name, text in files.items() if name.startswith("solutions/")))
    assert final["best"]["program"] in solution["name"] and "no LLM" in solution["description"]
    if package() is not None:
        from flashinfer_bench.data import TraceSet

        found = TraceSet.from_path(str(tmp_path / "out"))
        assert len(found.traces[solution["definition"]]) == len(services.task.workloads)


def test_the_command_refuses_what_nothing_vouches_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    services = FakeServices(tmp_path / "k.db")
    start(compiled(services), **FORM)
    asked = ("export", "last", "--out", tmp_path / "out", "--db", services.database)
    assert command(*asked, "--format", "flashinfer-bench") == 1
    assert "unverified: no receipt" in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert command(*asked, "--format", "zip") == 2
    assert "'zip' is none of flashinfer-bench" in capsys.readouterr().err
