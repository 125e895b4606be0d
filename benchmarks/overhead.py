"""What the machinery itself costs: a long scripted search through the real graph, prompts, saver and archive.

    python benchmarks/overhead.py [--attempts 2000] [--dir FOLDER] [--task int8_gemm]

Model and evaluator are scripted and their time is taken off; what remains is LangGraph, the nodes, the prompts
and the database. The database lies on the disk that holds FOLDER (default: this checkout).
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from langchain_core.language_models import BaseChatModel  # noqa: E402
from langchain_core.messages import AIMessage, BaseMessage  # noqa: E402
from langchain_core.outputs import ChatGeneration, ChatResult  # noqa: E402
from pydantic import Field  # noqa: E402

from graph.build import build_graph  # noqa: E402
from graph.checkpointer import Saver  # noqa: E402
from nodes.services import Services  # noqa: E402
from state.archive import Archive  # noqa: E402
from state.database import connect  # noqa: E402
from state.lease import Lease  # noqa: E402
from state.program import Program  # noqa: E402
from state.settings import Settings  # noqa: E402
from state.verdict import CompileError, Passed, Receipt, Verdict, WorkloadTiming  # noqa: E402
from tasks.evaluator import BaselineTiming  # noqa: E402
from tasks.task import Task, find_task  # noqa: E402

RUN = "0f0e0d0c-0000-4000-8000-000000000002"
GOAL_MS, GOAL_MB = 5.0, 40.0
WORDS = ("tile", "pack", "unroll", "prefetch", "vectorise", "split", "fuse", "hoist", "widen", "stage", "align", "skew")
PLACES = (
    "rows",
    "columns",
    "scales",
    "blocks",
    "weights",
    "lanes",
    "panels",
    "strips",
    "sums",
    "activations",
    "outputs",
)


class Stopwatch:
    """Seconds by name; what runs inside an outer one is not counted there again."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.processor: dict[str, float] = defaultdict(float)
        """Processor seconds of the whole process: what is left of a measurement on a busy machine."""
        self._inside: list[float] = []

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        begun, worked = time.perf_counter(), time.process_time()
        self._inside.append(0.0)
        try:
            yield
        finally:
            took = time.perf_counter() - begun
            self.processor[name] += time.process_time() - worked
            self.seconds[name] += took - self._inside.pop()
            if self._inside:
                self._inside[-1] += took


class ScriptedModel(BaseChatModel):
    """Programs of 6 KB that do not compress trivially, and two new intents each turn."""

    watch: Any
    entry_point: str
    asked: list[tuple[float, float]] = Field(default_factory=list)
    """For each coder call: when it began, and the seconds spent in model and evaluator before."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        text = messages[-1].text
        if "# The tree" not in text:
            scripted = self.watch.seconds["model"] + self.watch.seconds["evaluator"]
            self.asked.append((time.perf_counter(), scripted))
        with self.watch.timing("model"):
            reply = _edits(text) if "# The tree" in text else _reply(text, self.entry_point)
            message = AIMessage(reply, usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2})
        return ChatResult(generations=[ChatGeneration(message=message)])


def _edits(prompt: str) -> str:
    rng = random.Random(prompt)
    nodes = [json.loads(line) for line in re.findall(r'^\{"id": .*\}$', prompt, re.MULTILINE)]
    closed = [node["id"] for node in nodes if node["status"] == "closed"]
    waiting = [node["id"] for node in nodes if node["status"] == "open"]
    edits: list[dict[str, object]] = []
    for offset in range(2):
        first, second = rng.sample(PLACES, 2)
        verb = rng.choice(WORDS)
        edits.append(
            {
                "kind": "insert", "parent": rng.choice(closed[-5:]), "key": None,
                "title": f"{verb.capitalize()} the {first} by {8 * (len(nodes) + offset)} before the {second}",
                "description": f"{verb.capitalize()} the {first} so that the inner loop reads the {second} once; "
                "keep them in registers across the block and write the result with aligned stores. "
                f"The {first} should fit in the first-level cache together with one strip of {second}.",
                "priority": round(rng.random(), 3), "predicted_score": round(rng.uniform(90, 260), 1),
                "confidence": round(rng.random(), 2), "difficulty": rng.randint(1, 5),
                "evidence": f"the {second} dominate the time on the small workloads after {rng.choice(closed)}",
            }
        )  # fmt: skip
    for node in rng.sample(waiting, min(3, len(waiting))):
        edits.append({"kind": "update", "node": node, "priority": round(rng.random(), 3),
                      "evidence": f"its sibling changed the score by {rng.uniform(-9, 9):.1f} %"})  # fmt: skip
    return json.dumps({"edits": edits}, indent=1)


def _reply(prompt: str, entry_point: str) -> str:
    rng = random.Random(prompt)
    lines = ["#include <immintrin.h>", "#include <cstdint>", "#include <vector>", "",
             f'extern "C" void {entry_point}(...) {{ /* {rng.getrandbits(64):x} */']  # fmt: skip
    size = 0
    while size < 6000 - 300:
        a, b, verb = rng.choice(PLACES), rng.choice(PLACES), rng.choice(WORDS)
        line = rng.choice(
            (
                f"    for (int64_t {a[0]}{rng.randint(0, 99)} = 0; {a[0]} < {rng.choice((16, 32, 64))}; ++{a[0]});",
                f"    acc{rng.randint(0, 31)} = "
                f"_mm512_dpbusd_epi32(acc{rng.randint(0, 9)}, {a}[{rng.getrandbits(12)}], {b}[{rng.getrandbits(12)}]);",
                f"    const float {verb}_{a}{rng.randint(0, 99)} = {b}[{rng.getrandbits(10)}] * {rng.random():.7f}f;",
                f"    // {verb} the {a}: {b} {rng.getrandbits(40):x} stay for {rng.randint(2, 900)} turns",
                f"    auto {verb}_{a}_{rng.getrandbits(32):08x} = [&](const int8_t *{a}, float *{b}) {{}};",
            )
        )
        lines.append(line)
        size += len(line) + 1
    lines.append("}")
    code = "\n".join(lines)
    return f"This version keeps the {rng.choice(PLACES)} in registers.\n\n```cpp\n{code}\n```\n"


class ScriptedEvaluator:
    """A verdict with a full receipt; some programs do not compile, some are a little better."""

    version = "scripted-1"
    hardware = "Scripted Processor (16 cores), AVX-512 VNNI"

    def __init__(self, task: Task, watch: Stopwatch) -> None:
        self.task, self.watch = task, watch

    def baseline(self) -> tuple[BaselineTiming, ...]:
        return tuple(
            BaselineTiming(workload=w.name, latency_us={"eager": 900.0, "compiled": 700.0}, strongest="compiled")
            for w in self.task.workloads
        )

    def use_baseline(self, timings: tuple[BaselineTiming, ...]) -> None:
        pass

    def prepare(self, programs: Sequence[Program]) -> None:
        pass

    def evaluate(self, program: Program) -> Verdict:
        with self.watch.timing("evaluator"):
            rng = random.Random(program.id)
            if rng.random() < 0.1:
                lines = [f"program.cpp:{rng.randint(1, 200)}:{rng.randint(1, 80)}: error: {rng.getrandbits(64):x}"] * 12
                return CompileError(message="\n".join(lines), receipt=self._receipt(program, rng))
            gain = rng.uniform(0.8, 2.4)
            timings = tuple(
                WorkloadTiming(workload=w.name, latency_us=700 / gain * rng.uniform(0.95, 1.05), baseline_us=700.0,
                               baseline="compiled", noise=rng.uniform(0.001, 0.01))
                for w in self.task.workloads
            )  # fmt: skip
            return Passed(timings=timings, noise=0.005, receipt=self._receipt(program, rng))

    confirm = evaluate
    held_out = evaluate

    def close(self) -> None:
        pass

    def _receipt(self, program: Program, rng: random.Random) -> Receipt:
        return Receipt(
            task=self.task.name, task_hash=self.task.hash, program_id=program.id, evaluator=self.version,
            hardware=self.hardware, isa="native: avx2 fma f16c avx512f avx512bw avx512vl avx512_vnni",
            versions={"g++": "13.2.0", "torch": "2.13.0+cpu", "python": "3.11.7", "kernel": "6.8.0", "os": "Debian 13"},
            compiler_flags=("-std=c++17", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"), threads=16,
            environment={"OMP_NUM_THREADS": "16", "OMP_WAIT_POLICY": "active", "GLIBC_TUNABLES": "hugetlb=1"},
            seeds=tuple(rng.getrandbits(31) for _ in range(8)), rounds=40, compile_s=rng.random(),
            method="interleaved rounds, median of ratios, trusted wall clock, cold second-level cache",
            checks=("finite", "written", "tolerance", "inputs unchanged", "guard pages", "left no process"),
            evaluate_s=rng.random(),
        )  # fmt: skip


class TimedArchive(Archive):
    """Every method's own time under "archive"."""

    def __init__(self, path: Path, watch: Stopwatch) -> None:
        super().__init__(path)
        for name in (
            "verdict",
            "reply",
            "keep",
            "program",
            "verdicts_of",
            "tried",
            "record",
            "event_count",
            "save_run",
        ):
            setattr(self, name, _timed(getattr(self, name), watch, "archive"))


class TimedSaver(Saver):
    """Time of checkpoints and writes under "saver"."""

    def __init__(self, path: Path, watch: Stopwatch) -> None:
        super().__init__(path)
        self.watch = watch

    def put(self, *args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        saved = super().put(*args, **kwargs)
        self.watch.seconds["saver"] += time.perf_counter() - begun
        return saved


def _timed(method: Callable[..., Any], watch: Stopwatch, name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with watch.timing(name):
            return method(*args, **kwargs)

    return call


def search(task: Task, attempts: int, database: Path, watch: Stopwatch) -> tuple[dict[str, Any], list[float]]:
    """The final state, and for each attempt the milliseconds outside model and evaluator."""
    archive = TimedArchive(database, watch)
    model = ScriptedModel(watch=watch, entry_point=task.entry_point)
    made: list[Services] = []

    def services(run: str, settings: Settings) -> Services:
        if not made:
            made.append(
                Services(run=run, settings=settings, task=task, archive=archive,
                         evaluator=ScriptedEvaluator(task, watch), world_model=model, coder=model,
                         lease=Lease(database, run))
            )  # fmt: skip
        return made[0]

    saver = TimedSaver(database, watch)
    graph = build_graph(services).compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": RUN}, "recursion_limit": 20 * attempts}
    form = {"task": task.name, "model": "playbook", "budget": attempts}
    begun, worked = time.perf_counter(), time.process_time()
    with closing(saver), closing(archive):
        state = graph.invoke(form, config, durability="sync")
    watch.processor["all"] = time.process_time() - worked
    scripted = watch.seconds["model"] + watch.seconds["evaluator"]
    marks = [(begun, 0.0), *model.asked[1:], (time.perf_counter(), scripted)]
    costs = [1000 * ((late - early) - (after - before)) for (early, before), (late, after) in pairwise(marks)]
    return dict(state), costs


def report(state: dict[str, Any], costs: list[float], watch: Stopwatch, database: Path) -> bool:
    """Prints the figures; whether both goals are met."""
    with closing(connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sizes = connection.execute(
            "SELECT name, sum(pgsize) / 1e6 FROM dbstat GROUP BY name ORDER BY 2 DESC"
        ).fetchall()
        free = connection.execute("PRAGMA freelist_count").fetchone()[0] * 4096 / 1e6
    megabytes = database.stat().st_size / 1e6
    mean, quarter = statistics.fmean(costs), len(costs) // 4
    cuts = statistics.quantiles(costs, n=100)
    print(f"{state['attempts']} attempts, {state['evaluations']} evaluations, {state['round']} rounds, "
          f"{len(state['tree']['nodes'])} nodes in the tree")  # fmt: skip
    print(f"outside model and evaluator: mean {mean:.2f} ms an attempt, p50 {cuts[49]:.2f}, p95 {cuts[94]:.2f} "
          f"(first quarter {statistics.fmean(costs[:quarter]):.2f}, last {statistics.fmean(costs[-quarter:]):.2f}); "
          f"goal {GOAL_MS}")  # fmt: skip
    ours = watch.processor["all"] - watch.processor["model"] - watch.processor["evaluator"]
    print(f"  processor time: mean {1000 * ours / len(costs):.2f} ms")
    for name in ("archive", "saver"):
        print(f"  {name}: {1000 * watch.seconds[name] / len(costs):.2f} ms")
    print(f"database: {megabytes:.1f} MB, {free:.1f} MB of it free; goal {GOAL_MB:.0f}")
    print("  " + ", ".join(f"{name} {size:.1f}" for name, size in sizes[:6]))
    return mean <= GOAL_MS and megabytes <= GOAL_MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--attempts", type=int, default=2000)
    parser.add_argument("--dir", type=Path, default=ROOT, help="a folder on the disk to measure")
    parser.add_argument("--task", default="int8_gemm")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir, prefix=".overhead-") as folder:
        database = Path(folder) / "ksearch.db"
        watch = Stopwatch()
        state, costs = search(find_task(options.task), options.attempts, database, watch)
        met = report(state, costs, watch, database)
    raise SystemExit(0 if met else 1)


if __name__ == "__main__":
    main()
