"""Re-times a search's winner by other means than the search did; shares no code with it.

    python benchmarks/retime.py BEST_DIR --task-folder tasks/library/int8_gemm

BEST_DIR is what `ksearch best RUN --out BEST_DIR` wrote: kernel.cpp and result.json. Needs g++, torch and nothing else.
Exits with 1 when the outputs are wrong, or when J differs from the stored one by more than --limit percent.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import inspect
import json
import math
import mmap
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from pathlib import Path
from typing import Any

ENVIRONMENT = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=8589934592"
    ":glibc.malloc.top_pad=268435456",
}
"""An allocator that keeps its pages: without it every large PyTorch temporary is paged in anew."""
ALIGNMENT = 256
CALL_LIMIT_S = 60.0
warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
WARM_UP = 4
CHECK_EVERY = 8


def serve(arena_fd: int, library: str, entry_point: str) -> None:
    """The candidate's process: one line of offsets and dimensions in, the nanoseconds of that call out."""
    arena = mmap.mmap(arena_fd, 0)
    base = ctypes.addressof(ctypes.c_char.from_buffer(arena))
    function = getattr(ctypes.CDLL(library), entry_point)
    function.restype = None
    for line in sys.stdin:
        call = json.loads(line)
        arguments: list[Any] = [ctypes.c_void_p(base + offset) for offset in call["offsets"]]
        arguments += [ctypes.c_int64(dim) for dim in call["dims"]]
        arguments += [ctypes.c_double(param) for param in call["params"]]
        began = time.perf_counter_ns()
        function(*arguments)
        taken = time.perf_counter_ns() - began
        print(taken, flush=True)


class Bench:
    """A task's tensors in shared memory, and the process that holds the candidate."""

    def __init__(self, folder: Path) -> None:
        self.task = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
        loads = (*self.task["workloads"], *self.task.get("held_out", []))
        self.loads = {load["name"]: {**load["dims"], **load.get("params", {})} for load in loads}
        """Dims and params of each workload."""
        self.earlier: dict[str, dict[str, Any]] = {}
        spec = importlib.util.spec_from_file_location("formulations", folder / "reference.py")
        assert spec is not None and spec.loader is not None
        self.formulations: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.formulations)

    def start(self, library: Path) -> None:
        """The candidate is loaded; the arena is as large as the largest workload needs."""
        import torch

        size = max(self.layout(dims)[1] for dims in self.loads.values())
        descriptor = os.memfd_create("retime")
        os.ftruncate(descriptor, size)
        self.arena = torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)
        self.arena.zero_()
        command = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), "--serve", str(descriptor)]
        self.process = subprocess.Popen(
            [*command, str(library), self.task["entry_point"]],
            pass_fds=(descriptor,), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def layout(self, dims: dict[str, int]) -> tuple[list[int], int]:
        """Offset of each tensor in the order of the entry point, and the bytes that all of them take."""
        import torch

        offsets, end = [], 0
        for spec in (*self.task["inputs"], *self.task["outputs"]):
            offsets.append(end)
            nbytes = math.prod(extents(spec, dims)) * getattr(torch, spec["dtype"]).itemsize
            end += (nbytes + 2 * ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        return offsets, end

    def view(self, spec: dict[str, Any], dims: dict[str, int]) -> Any:
        """The part of the arena that holds one tensor."""
        import torch

        names = [tensor["name"] for tensor in (*self.task["inputs"], *self.task["outputs"])]
        offset = self.layout(dims)[0][names.index(spec["name"])]
        dtype, shape = getattr(torch, spec["dtype"]), extents(spec, dims)
        nbytes = math.prod(shape) * dtype.itemsize
        return self.arena[offset : offset + nbytes].view(dtype).view(shape)

    def candidate(self, inputs: dict[str, Any], dims: dict[str, int], pause_s: float) -> float:
        """Microseconds of one call on inputs written just before it, after an untimed one on older inputs.

        PyTorch's threads are asleep by then, and the candidate's awake, as they are in the middle of a model.
        """
        time.sleep(pause_s)
        self.call(dims)
        for spec in self.task["inputs"]:
            copy(self.view(spec, dims), inputs[spec["name"]])
        for spec in self.task["outputs"]:
            view = self.view(spec, dims)
            ctypes.memset(view.data_ptr(), 0xFF, view.numel() * view.element_size())
        return self.call(dims)

    def call(self, dims: dict[str, int]) -> float:
        """Microseconds of one call on what is in the arena."""
        call = {"offsets": self.layout(dims)[0], "dims": [dims[name] for name in self.task["dims"]],
                "params": [dims[name] for name in self.task.get("params", [])]}  # fmt: skip
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(call).encode() + b"\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], CALL_LIMIT_S)[0]:
            self.process.kill()
            sys.exit(f"the candidate did not return within {CALL_LIMIT_S:.0f} s")
        reply = self.process.stdout.readline()
        if not reply:
            sys.exit(f"the candidate's process ended with status {self.process.wait()}")
        return int(reply) / 1000

    def given(self, name: str, inputs: dict[str, Any], dims: dict[str, int]) -> dict[str, Any]:
        """The inputs, and those dims and params that a formulation has parameters for."""
        wanted = inspect.signature(getattr(self.formulations, name)).parameters
        return {**inputs, **{key: value for key, value in dims.items() if key in wanted}}

    def baseline(self, name: str, inputs: dict[str, Any], pause_s: float) -> float:
        """Microseconds of one call of a formulation, after an untimed one on other inputs; the candidate is asleep."""
        formulation = getattr(self.formulations, name)
        time.sleep(pause_s)
        formulation(**self.earlier.get(name, inputs))
        self.earlier[name] = inputs
        began = time.perf_counter_ns()
        formulation(**inputs)
        return (time.perf_counter_ns() - began) / 1000

    def fault(self, inputs: dict[str, Any], dims: dict[str, int]) -> str:
        """How the outputs in the arena differ from the reference; empty when they agree."""
        wanted = self.formulations.reference(**self.given("reference", inputs, dims))
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        atol, rtol = self.task["tolerance"]["atol"], self.task["tolerance"]["rtol"]
        for spec, exact in zip(self.task["outputs"], wanted, strict=True):
            want = exact.double()
            worst = ((self.view(spec, dims).double() - want).abs() / (atol + rtol * want.abs())).max().item()
            if not worst <= 1.0:
                return f"{spec['name']} is off by {worst:.3g} times the tolerance"
        return ""


def copy(target: Any, source: Any) -> None:
    """The bytes of one tensor are those of another; no OpenMP thread is woken for it."""
    ctypes.memmove(target.data_ptr(), source.data_ptr(), source.numel() * source.element_size())


def extents(spec: dict[str, Any], dims: dict[str, int]) -> list[int]:
    """Numbers for a shape of numbers, names and "name/number"."""
    shape = []
    for extent in spec["shape"]:
        name, _, divisor = str(extent).partition("/")
        shape.append((int(name) if name.isdigit() else dims[name]) // int(divisor or 1))
    return shape


def time_workload(bench: Bench, name: str, baseline: str, options: argparse.Namespace) -> tuple[float, float]:
    """Microseconds of the candidate and of its baseline, in the median ratio of all rounds; each on fresh inputs."""
    import torch

    generator = torch.Generator()
    generator.seed()
    dims, ours, theirs = bench.loads[name], [], []
    pause_s = options.pause_ms / 1000
    for index in range(WARM_UP + options.rounds):
        inputs = bench.formulations.make_inputs(generator, **dims)
        if index % 2:
            theirs.append(bench.baseline(baseline, bench.given(baseline, inputs, dims), pause_s))
        ours.append(bench.candidate(inputs, dims, pause_s))
        if not index % 2:
            theirs.append(bench.baseline(baseline, bench.given(baseline, inputs, dims), pause_s))
        fault = "" if index % CHECK_EVERY else bench.fault(inputs, dims)
        if fault:
            sys.exit(f"{name}: wrong result: {fault}")
    ratio = statistics.median(their / our for our, their in zip(ours[WARM_UP:], theirs[WARM_UP:], strict=True))
    baseline_us = statistics.median(theirs[WARM_UP:])
    return baseline_us / ratio, baseline_us


def build(source: Path, march: str, folder: str) -> Path:
    """A shared object, made with the flags that the task states."""
    library = Path(folder) / "candidate.so"
    command = ["g++", "-std=c++17", "-O3", f"-march={march}", "-fopenmp", "-shared", "-fPIC", "-o", str(library)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"g++ failed:\n{done.stderr}")
    return library


def geometric(ratios: list[float]) -> float:
    return 100.0 * math.exp(statistics.mean(math.log(ratio) for ratio in ratios))


def report(rows: list[tuple[dict[str, Any], float, float]], limit: float) -> int:
    """The table is printed; 0 when both J agree within the limit (percent)."""
    print(
        f"{'workload':16} {'candidate us':>13} {'baseline us':>12} {'ratio':>7} {'stored':>7} {'change':>8}  baseline"
    )
    stored = []
    for timing, ours, theirs in rows:
        stored.append(timing["baseline_us"] / timing["latency_us"])
        ratio = theirs / ours
        print(f"{timing['workload']:16} {ours:13.1f} {theirs:12.1f} {ratio:7.3f} {stored[-1]:7.3f} "
              f"{ratio / stored[-1] - 1:+8.1%}  {timing['baseline']}")  # fmt: skip
    score, old = geometric([theirs / ours for _, ours, theirs in rows]), geometric(stored)
    difference = abs(score / old - 1) * 100
    verdict = "agrees within" if difference <= limit else "DIFFERS by more than"
    print(f"J {score:.1f} here, {old:.1f} stored: {verdict} {limit:g} % (difference {difference:.1f} %)")
    return int(difference > limit)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Re-time what `ksearch best RUN --out BEST_DIR` wrote.")
    parser.add_argument("best", type=Path, metavar="BEST_DIR")
    parser.add_argument("--task-folder", type=Path, required=True)
    parser.add_argument("--march", help="default: the one in result.json")
    parser.add_argument("--threads", type=int, help="default: the number in result.json")
    parser.add_argument("--rounds", type=int, default=100, help="timed calls per side and workload (100)")
    parser.add_argument("--pause-ms", type=float, default=20.0, help="quiet time before every timed call (20)")
    parser.add_argument("--limit", type=float, default=5.0, help="largest difference of J, in percent (5)")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if not (options.best / "result.json").is_file():
        sys.exit(f"{options.best}: no folder with a result.json; `ksearch best RUN --out FOLDER` writes one")
    result = json.loads((options.best / "result.json").read_text(encoding="utf-8"))
    threads = options.threads or int(result["threads"])
    wanted = {**ENVIRONMENT, "OMP_NUM_THREADS": str(threads)}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})
    import torch

    torch.set_num_threads(threads)
    bench = Bench(options.task_folder)
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        bench.start(build(options.best / "kernel.cpp", options.march or result["march"], folder))
        try:
            rows = [
                (timing, *time_workload(bench, timing["workload"], timing["baseline"], options))
                for timing in result["timings"]
            ]
        finally:
            bench.process.kill()
            bench.process.wait()
    return report(rows, options.limit)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), sys.argv[3], sys.argv[4])
    else:
        sys.exit(main())
