"""A task so small that an evaluation takes a fraction of a second: scale rows, and count positive values."""

from __future__ import annotations

from pathlib import Path

from state.program import Program
from tasks.task import Task, load_task

TOML = """
name = "rowscale"
title = "Scale rows"
specification = "y[i, j] = x[i, j] * s[i]; positive[i] = number of j with x[i, j] > 0"
entry_point = "rowscale"
languages = ["cpp"]
dims = ["m", "n"]
baselines = ["eager", "wrong", "raising"]

[[inputs]]
name = "x"
dtype = "float32"
shape = ["m", "n"]

[[inputs]]
name = "s"
dtype = "float32"
shape = ["m"]

[[outputs]]
name = "y"
dtype = "float32"
shape = ["m", "n"]

[[outputs]]
name = "positive"
dtype = "int32"
shape = ["m"]

[[workloads]]
name = "wide"
dims = { m = 24, n = 1000 }

[[workloads]]
name = "tall"
dims = { m = 300, n = 40 }

[[held_out]]
name = "hidden"
dims = { m = 7, n = 501 }

[tolerance]
atol = 1e-6
rtol = 1e-5

[limits]
call_s = 1.5
compile_s = 30.0
memory_mb = 200
"""

REFERENCE = """
import torch

def make_inputs(generator, m, n):
    return {"x": torch.randn(m, n, generator=generator), "s": torch.rand(m, generator=generator) + 0.5}

def reference(x, s):
    return x * s[:, None], (x > 0).sum(1, dtype=torch.int32)

def eager(x, s):
    return x * s[:, None], (x > 0).sum(1, dtype=torch.int32)

def wrong(x, s):
    return x * 1.5, (x > 0).sum(1, dtype=torch.int32)

def raising(x, s):
    raise NotImplementedError("this build lacks it")
"""

RIGHT = """
static void right(const float *x, const float *s, float *y, int32_t *positive, int64_t m, int64_t n) {
    #pragma omp parallel for
    for (int64_t i = 0; i < m; i++) {
        int32_t count = 0;
        for (int64_t j = 0; j < n; j++) {
            y[i * n + j] = x[i * n + j] * s[i];
            count += x[i * n + j] > 0;
        }
        positive[i] = count;
    }
}
"""

INCLUDES = "".join(
    f"#include <{name}>\n"
    for name in ("stdint.h", "stdio.h", "stdlib.h", "string.h", "math.h", "unistd.h", "sys/mman.h", "time.h")
)

CALL_RIGHT = "right(x, s, y, positive, m, n);"


def program(body: str = CALL_RIGHT, extra: str = "") -> Program:
    """A program for the task whose entry point has this body; it may call right(...)."""
    entry = "void rowscale(const float *x, const float *s, float *y, int32_t *positive, int64_t m, int64_t n)"
    return Program(language="cpp", source=f'{INCLUDES}{RIGHT}{extra}\nextern "C" {entry} {{\n{body}\n}}\n')


def write_task(folder: Path, reference: str = REFERENCE, toml: str = TOML) -> Task:
    """The task, in a folder of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.toml").write_text(toml)
    (folder / "reference.py").write_text(reference)
    return load_task(folder)
