"""Every program of the playbook of gqa_decode_cpu is right: compiled, called, and compared with the reference."""

from __future__ import annotations

import ctypes
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from test_playbook_programs import imported, programs

from tasks.compiler import find_compiler
from tasks.task import LIBRARY, load_task

FOLDER = LIBRARY / "gqa_decode_cpu"
SCALE = 128**-0.5
SHAPES = [(1, 1, 1), (3, 40, 3), (2, 1200, 1111), (5, 300, 270)]
"""Sequences, pages, indices: single keys, tiles that are not full, sequences that are split."""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    compiler, scratch = find_compiler("native"), tmp_path_factory.mktemp("built")

    def built(name: str, source: str) -> tuple[str, Path]:
        (scratch / f"{name}.cpp").write_text(source)
        out = scratch / f"{name}.so"
        command = [
            compiler.path,
            *compiler.flags,
            "-O1",
            "-shared",
            "-fPIC",
            "-o",
            str(out),
            str(scratch / f"{name}.cpp"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"
        return name, out

    sources = {source: name for _, name, source in programs(FOLDER / "playbook" / "cpp")}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(pool.map(lambda item: built(item[1], item[0]), sources.items()))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_program_agrees_with_the_reference(libraries: dict[str, Path], shape: tuple[int, int, int]) -> None:
    batch, pages, indices = shape
    task, reference = load_task(FOLDER), imported(FOLDER / "reference.py")
    numbers = (batch, pages, batch + 1, indices)
    inputs = reference.make_inputs(torch.Generator().manual_seed(3), *numbers, SCALE)
    inputs["q"].mul_(8.0)  # logits far from zero
    expected = reference.reference(**inputs, sm_scale=SCALE)
    for name, library in libraries.items():
        outputs = [torch.full_like(tensor, float("nan")) for tensor in expected]
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*inputs.values(), *outputs)]
        integers = [ctypes.c_int64(number) for number in numbers]
        ctypes.CDLL(str(library)).attention(*pointers, *integers, ctypes.c_double(SCALE))
        for got, want in zip(outputs, expected, strict=True):
            torch.testing.assert_close(got, want, atol=task.tolerance.atol, rtol=task.tolerance.rtol, msg=name)
