"""Python, Triton and CUDA programs that cheat or do harm each get their own verdict; honest ones pass.

The Python ones also run on a CPU; `pytest -m gpu -s tests/test_hostile_torch.py` runs all of them on a GPU and prints
the tables.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_suite import Hostile, Outcome, families, good, table

from state.program import Language, Program
from state.verdict import Passed, summary
from tasks.isolation import alive, descendants
from tasks.local import LocalEvaluator
from tasks.task import Device, load_task

TOML = """
name = "softmax"
title = "Softmax of each row"
specification = "y[i] = softmax(x[i])"
entry_point = "softmax"
languages = ["python", "triton", "cuda"]
dims = ["rows", "columns"]
baselines = ["library"]

[[inputs]]
name = "x"
dtype = "float32"
shape = ["rows", "columns"]

[[outputs]]
name = "y"
dtype = "float32"
shape = ["rows", "columns"]

[[workloads]]
name = "small"
device = "cpu"
dims = { rows = 256, columns = 1024 }

[[workloads]]
name = "wide"
device = "cpu"
dims = { rows = 64, columns = 8192 }

[[workloads]]
name = "gpu_small"
device = "cuda"
dims = { rows = 8192, columns = 1024 }

[[workloads]]
name = "gpu_wide"
device = "cuda"
dims = { rows = 1024, columns = 8192 }

[tolerance]
atol = 1e-6
rtol = 1e-4

[limits]
call_s = 1.0
compile_s = 4.0
memory_mb = 768
gpu_memory_mb = 2048
"""
REFERENCE = """
import torch

def make_inputs(generator, rows, columns):
    return {"x": torch.randn(rows, columns, generator=generator, device=generator.device)}

def reference(x):
    return torch.softmax(x.double(), 1).float()

def library(x):
    return torch.softmax(x, 1)
"""
Place = tuple[Language, Device]
PLACES: tuple[Place, ...] = (
    ("python", "cpu"),
    ("python", "cuda"),
    ("triton", "cuda"),
    ("cuda", "cuda"),
)


def _cases(honest: bool) -> list[Any]:
    """Every program in every place where it can run."""
    found = []
    for language, device in PLACES:
        marks = [pytest.mark.gpu] if device == "cuda" else []
        names = sorted(good(language)) if honest else [program.family for program in families(language)]
        found += [
            pytest.param((language, device), name, id=f"{language}-{device}-{name}", marks=marks) for name in names
        ]
    return found


class Judges:
    """One evaluator for each place, and what came of every program."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[tuple[Language, Device, float], LocalEvaluator] = {}
        self.outcomes: dict[Place, list[Outcome]] = {}

    def of(self, place: Place, compile_s: float) -> LocalEvaluator:
        """The evaluator of a place whose compilers and first calls may take so long."""
        made = self._made.get((*place, compile_s))
        if made is None:
            folder = self._folder / f"{compile_s:g}"
            folder.mkdir(exist_ok=True)
            (folder / "task.toml").write_text(TOML.replace("compile_s = 4.0", f"compile_s = {compile_s}"))
            (folder / "reference.py").write_text(REFERENCE)
            task = load_task(folder).narrowed(*place)
            made = self._made[(*place, compile_s)] = LocalEvaluator(task, device=place[1], rounds=8)
            if place[0] == "cuda":
                sources = [program.source for program in families("cuda")] + list(good("cuda").values())
                made.prepare([Program(language="cuda", source=source) for source in sources])
        return made

    def close(self) -> None:
        """Nothing runs any more, and the tables are printed."""
        for evaluator in self._made.values():
            evaluator.close()
        for (language, device), outcomes in self.outcomes.items():
            print(f"\n{language} on {device}\n\n{table(outcomes)}")


@pytest.fixture(scope="module")
def judges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judges]:
    made = Judges(tmp_path_factory.mktemp("task"))
    yield made
    made.close()


@pytest.mark.parametrize(("place", "name"), _cases(honest=False))
def test_a_hostile_program_gets_its_own_verdict(judges: Judges, place: Place, name: str) -> None:
    program: Hostile = next(program for program in families(place[0]) if program.family == name)
    judge = judges.of(place, 120.0 if place[0] == "cuda" else 4.0)
    began = time.monotonic()
    verdict = judge.evaluate(Program(language=place[0], source=program.source))
    judges.outcomes.setdefault(place, []).append(Outcome(program, verdict, time.monotonic() - began))
    print(f"{place[0]} on {place[1]}: {name}: {summary(verdict)}", flush=True)
    assert program.answered_by(verdict), verdict
    assert verdict.receipt
    assert _strays(judge) == set()


@pytest.mark.parametrize(("place", "name"), _cases(honest=True))
def test_an_honest_program_passes(judges: Judges, place: Place, name: str) -> None:
    judge = judges.of(place, 120.0)
    verdict = judge.evaluate(Program(language=place[0], source=good(place[0])[name]))
    assert isinstance(verdict, Passed), verdict
    assert _strays(judge) == set()


def _strays(judge: LocalEvaluator) -> set[int]:
    """Processes below the trusted one that are neither the zygote nor compilers' leftovers."""
    trusted = judge.trusted_pid
    assert trusted is not None
    found = {pid for pid in descendants(trusted) if alive(pid)}
    return {pid for pid in found if b"tasks.zygote" not in Path(f"/proc/{pid}/cmdline").read_bytes()} - {os.getpid()}
