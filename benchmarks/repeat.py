"""Judges one program again and again, each time in a fresh process: does J spread as little as receipts state?

python benchmarks/repeat.py int8_gemm best/kernel.cpp
python benchmarks/repeat.py softmax rows.py --language triton --device cuda
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from state.program import Program, language_of  # noqa: E402
from state.verdict import Passed, summary  # noqa: E402
from tasks.local import LocalEvaluator  # noqa: E402
from tasks.task import find_task  # noqa: E402

GOAL = {"cpu": 0.02, "cuda": 0.015}
"""Relative standard deviation of J at most."""
STATED = 2.0
"""Times the noise that the receipts state, at most."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("task")
    parser.add_argument("program", type=Path)
    parser.add_argument("--language")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--rounds", type=int, help="timing rounds at most; default: the evaluator's own")
    options = parser.parse_args()
    task = find_task(options.task).narrowed(options.language, options.device)
    source = options.program.read_text()
    language = language_of(options.program.name, source, task.languages)
    if language is None:
        parser.error(f"{options.program}: task {task.name} takes {', '.join(task.languages)} here")
    evaluator = LocalEvaluator(task, device=options.device, rounds=options.rounds)
    program = Program(language=language, source=source)
    passed: list[Passed] = []
    try:
        for _ in range(options.times):
            verdict = evaluator.evaluate(program)
            print(summary(verdict), flush=True)
            if isinstance(verdict, Passed):
                passed.append(verdict)
    finally:
        evaluator.close()
    raise SystemExit(0 if report(passed, options.times, options.device) else 1)


def report(passed: list[Passed], times: int, device: str) -> bool:
    """Prints the spread of J and of each workload's ratio; whether the goals are met."""
    if len(passed) < times or times < 2:
        print(f"passed {len(passed)} of {times} times")
        return False
    spread = relative([verdict.score for verdict in passed])
    stated = statistics.fmean(verdict.noise for verdict in passed)
    print(f"J {statistics.fmean(verdict.score for verdict in passed):.1f}, standard deviation {spread:.2%} "
          f"(goal {GOAL[device]:.1%}), receipts state {stated:.2%} on average")  # fmt: skip
    for index, timing in enumerate(passed[0].timings):
        runs = [verdict.timings[index] for verdict in passed]
        ours, theirs = relative([run.latency_us for run in runs]), relative([run.baseline_us for run in runs])
        print(f"  {timing.workload}: {statistics.median(run.latency_us for run in runs):.1f} us +- {ours:.2%}, "
              f"baseline {statistics.median(run.baseline_us for run in runs):.1f} us +- {theirs:.2%}, ratio +- "
              f"{relative([run.speedup for run in runs]):.2%}")  # fmt: skip
    return spread <= GOAL[device] and spread <= STATED * stated


def relative(values: list[float]) -> float:
    """Standard deviation over mean."""
    return statistics.stdev(values) / statistics.fmean(values)


if __name__ == "__main__":
    main()
