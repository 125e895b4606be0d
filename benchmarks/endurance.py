"""Two hundred evaluations, one in four of them a crash, a hang or an out-of-memory: does anything pile up?

python benchmarks/endurance.py                    # the processor
python benchmarks/endurance.py --device cuda      # prints the device's memory in use on the way
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from test_hostile_torch import REFERENCE, TOML  # noqa: E402

from state.program import Program  # noqa: E402
from state.verdict import Crashed, Passed, Verdict  # noqa: E402
from tasks.isolation import alive, descendants  # noqa: E402
from tasks.local import LocalEvaluator  # noqa: E402
from tasks.task import load_task  # noqa: E402

GOOD = "import torch\ndef softmax(x, y, rows, columns):\n    torch.softmax(x, 1, out=y)\n"
BAD = ("endless_kernel", "eats_memory", "illegal_access", "early_exit_0", "raises_exception")
BAD_ON_GPU = ("endless_kernel", "eats_gpu_memory", "illegal_access", "early_exit_0", "raises_exception")
EVERY = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--times", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        toml = TOML.replace("call_s = 1.0", "call_s = 0.5").replace("compile_s = 4.0", "compile_s = 2.0")
        (Path(folder) / "task.toml").write_text(toml)
        (Path(folder) / "reference.py").write_text(REFERENCE)
        task = load_task(Path(folder)).narrowed("python", options.device)
        evaluator = LocalEvaluator(task, device=options.device, rounds=4)
        flat = endured(evaluator, options.times, options.device)
        trusted = evaluator.trusted_pid
        evaluator.close()
    left = trusted is not None and alive(trusted)
    print(f"after the end: trusted process {'alive' if left else 'gone'}, {device_memory(options.device)}")
    raise SystemExit(0 if flat and not left else 1)


def endured(evaluator: LocalEvaluator, times: int, device: str) -> bool:
    """Prints what came of the evaluations; whether no process piled up and every good program passed."""
    bad = [(ROOT / "tests" / "programs" / "hostile" / "python" / f"{name}.py").read_text()
           for name in (BAD_ON_GPU if device == "cuda" else BAD)]  # fmt: skip
    kinds: Counter[str] = Counter()
    steady, began = True, time.monotonic()
    for index in range(times):
        hostile = index % 4 == 3
        source = bad[index // 4 % len(bad)] if hostile else f"{GOOD}# {index}\n"
        verdict = evaluator.evaluate(Program(language="python", source=source))
        kinds[named(verdict)] += 1
        steady = steady and isinstance(verdict, Passed) != hostile
        if index % EVERY == EVERY - 1:
            assert evaluator.trusted_pid is not None
            below = sum(alive(pid) for pid in descendants(evaluator.trusted_pid))
            files = descriptors(evaluator.trusted_pid)
            print(
                f"{index + 1}: {below} below the trusted process, {files} open files, {device_memory(device)}",
                flush=True,
            )
            steady = steady and below <= 1
    print(f"{times} evaluations in {time.monotonic() - began:.0f} s: {dict(kinds)}")
    return steady


def named(verdict: Verdict) -> str:
    """The verdict's kind, and of a crash its signal."""
    return f"crashed ({verdict.signal})" if isinstance(verdict, Crashed) else verdict.kind


def descriptors(pid: int) -> int:
    """Open files of a process."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def device_memory(device: str) -> str:
    """Memory in use on the GPU, as its driver says."""
    if device == "cpu":
        return "no device"
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return f"device memory in use: {said.stdout.strip()}"


if __name__ == "__main__":
    main()
