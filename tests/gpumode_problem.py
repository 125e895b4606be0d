"""A small problem in the layout of GPU Mode's reference-kernels, with a harness that follows the same protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

TASK: dict[str, Any] = {
    "files": [
        {"name": "submission.py", "source": "@SUBMISSION@"},
        {"name": "task.py", "source": "task.py"},
        {"name": "utils.py", "source": "../utils.py"},
        {"name": "reference.py", "source": "reference.py"},
        {"name": "eval.py", "source": "../eval.py"},
    ],
    "lang": "py",
    "description": "Scale the rows of x, and zero the masked ones.\n",
    "config": {"main": "eval.py"},
    "templates": {"Python": "template.py"},
    "tests": [
        {"rows": 2, "masked": True, "widths": [3, 4], "seed": 11},
        {"rows": 2, "masked": False, "widths": [3, 4], "seed": 12},
    ],
    "benchmarks": [
        {"rows": 8, "masked": False, "widths": [16, 32], "seed": 21},
        {"rows": 8, "masked": True, "widths": [16, 32], "seed": 22},
    ],
    "test_timeout": 60,
    "benchmark_timeout": 61,
    "ranked_timeout": 62,
    "ranking_by": "geom",
}

REFERENCE = """
import torch
from task import Scale
from utils import refused

SCALE = Scale(3.0)

def ref_kernel(data):
    x, mask, out = data
    out[...] = x * SCALE.factor * mask
    return out

def generate_input(rows, masked, widths, seed):
    generator = torch.Generator().manual_seed(seed)
    columns = sum(int(width) for width in widths) if isinstance(widths, tuple) else 7
    x = torch.rand(rows, columns, generator=generator) + 1
    mask = torch.ones(rows, 1)
    if masked:
        mask[torch.randint(rows, (1,))] = 0
    return x, mask, torch.zeros(rows, columns)

def check_implementation(data, output):
    return refused(output, ref_kernel(data))
"""

TASK_PY = """
import dataclasses

@dataclasses.dataclass
class Scale:
    factor: float
"""

PAIR = """
import torch

def refused(output, expected):
    if torch.allclose(output, expected):
        return True, ""
    return False, f"{int((output != expected).sum())} elements differ"
"""
STRING = """
import torch

def refused(output, expected):
    return "" if torch.allclose(output, expected) else "elements differ"
"""
"""The two forms that upstream's checks have."""

EVAL = r"""
import math
import multiprocessing
import os
import sys
import time

def cases():
    for line in open(sys.argv[2]):
        words = dict(part.strip().split(": ", 1) for part in line.split(";"))
        yield line.strip(), {key: int(word) if word.isdigit() else word for key, word in words.items()}

def tried(case, repeats):
    import reference
    import submission
    times, found = [], (True, "")
    for _ in range(repeats):
        data = reference.generate_input(**case)
        copy = tuple(tensor.clone() for tensor in data)
        began = time.perf_counter_ns()
        output = submission.custom_kernel(data)
        times.append(time.perf_counter_ns() - began)
        found = reference.check_implementation(copy, output)
    return found, times

def main():
    mode, good = sys.argv[1], True
    with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as out, multiprocessing.get_context("spawn").Pool(1) as pool:
        kind = "test" if mode == "test" else "benchmark"
        for index, (spec, case) in enumerate(cases()):
            print(f"{kind}.{index}.spec: {spec}", file=out, flush=True)
            (right, message), times = pool.apply(tried, (case, 1 if mode == "test" else 4))
            good = good and right
            if not right:
                print(f"{kind}.{index}.status: fail", file=out)
                print(f"{kind}.{index}.error: {message}", file=out)
            elif mode == "test":
                print(f"test.{index}.status: pass", file=out)
            else:
                mean = sum(times) / len(times)
                spread = math.sqrt(sum((t - mean) ** 2 for t in times) / (len(times) - 1))
                for key, value in {"runs": len(times), "mean": mean, "std": spread, "best": min(times)}.items():
                    print(f"benchmark.{index}.{key}: {value}", file=out)
        print("check:", "pass" if good else "fail", file=out)
    return 0 if good else 112

if __name__ == "__main__":
    sys.exit(main())
"""

RIGHT = """
def custom_kernel(data):
    x, mask, out = data
    out[...] = x * 3 * mask
    return out
"""
BLIND = RIGHT.replace("* mask", "")
"""Wrong wherever the mask has a zero."""


def write_problem(folder: Path, task: dict[str, Any] | str = TASK, **texts: str) -> Path:
    """The folder of the problem below `folder`; `texts` (reference, utils) replace files."""
    inside = folder / "problems" / "toy" / "rows_py"
    inside.mkdir(parents=True, exist_ok=True)
    (folder / "LICENSE").write_text("Toy Licence\nVersion 1\n")
    (inside / "task.yml").write_text(task if isinstance(task, str) else yaml.safe_dump(task, sort_keys=False))
    (inside / "reference.py").write_text(texts.get("reference", REFERENCE))
    (inside / "task.py").write_text(TASK_PY)
    (inside / "template.py").write_text("def custom_kernel(data): ...\n")
    (inside.parent / "utils.py").write_text(texts.get("utils", PAIR))
    (inside.parent / "eval.py").write_text(EVAL)
    return inside
