"""What every shipped task must be: its files fit together, its formulations agree, and models can be told of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from tasks.closeness import close
from tasks.device import Cpu
from tasks.local import plain
from tasks.problem import Problem
from tasks.prototype import prototype
from tasks.task import DEVICE, find_task, load_task, shipped
from tasks.workloads import FEW

ON_CPU = [name for name in shipped() if any(load.device != "cuda" for load in find_task(name).workloads)]


@pytest.mark.parametrize("name", shipped())
class TestShippedTask:
    """Whatever holds for all of them."""

    def test_every_language_has_notes_a_prototype_and_workloads(self, name: str) -> None:
        task = find_task(name)
        for language in task.languages:
            assert task.notes[language].strip()
            assert task.entry_point in prototype(task, language)
            narrowed = task.narrowed(language, DEVICE[language] or "cpu")
            lines = narrowed.workload_lines.splitlines()
            few = len(narrowed.workloads) <= FEW
            assert len(lines) == len(narrowed.workloads) if few else f"{len(narrowed.workloads)} workloads" in lines[0]

    def test_texts_are_told_apart_from_others(self, name: str) -> None:
        task = find_task(name)
        assert task.name == name and task.title and len(task.specification) > 200
        assert [find_task(other).title for other in shipped()].count(task.title) == 1

    def test_the_hash_covers_every_carried_file(self, name: str, tmp_path: Path) -> None:
        task = find_task(name)
        copied = load_task(Path(shutil.copytree(task.folder, tmp_path / task.folder.name)))
        assert copied.hash == task.hash
        for file in copied.carried:
            text = (copied.folder / file).read_bytes()
            (copied.folder / file).write_bytes(text + b"\n# one more line\n")
            assert load_task(copied.folder).hash != task.hash, file
            (copied.folder / file).write_bytes(text)


@pytest.mark.parametrize("name", ON_CPU)
def test_reference_and_baselines_agree_on_cpu_workloads(name: str) -> None:
    task = find_task(name)
    language = next(known for known in task.languages if DEVICE[known] != "cuda")
    task = task.narrowed(language)
    problem = Problem(plain(task), Cpu())
    tolerance = problem.tolerance
    smallest = min(task.workloads, key=lambda load: sum(load.dims.values()))
    load = problem.loads[smallest.name]
    with torch.no_grad():
        inputs = problem.inputs(load, 11)
        again = problem.inputs(load, 11)
        assert all(torch.equal(inputs[key], again[key]) for key in inputs)
        expected = problem.reference(load, inputs)
        for baseline in task.baselines:
            if "compiled" in baseline:
                continue  # seconds of compilation; the race checks them
            outputs = problem.formulation(baseline, load, inputs)
            for spec in load.outputs:
                assert close(outputs[spec.name].contiguous(), expected[spec.name], tolerance), baseline
