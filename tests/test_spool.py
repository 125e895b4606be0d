"""A machine that only files reach: requests written here, the real worker on them, answers brought back."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from small_runs import INTENTS, KSEARCH, PATIENCE_S, SMALL, environment, until
from tiny_task import REFERENCE, TOML, program, write_task

from graph.cli import main
from graph.running import Runs
from state.program import Program
from state.verdict import CompileError, Crashed, Passed
from tasks import envelope
from tasks.answers import checked
from tasks.envelope import BadFile
from tasks.evaluator import EvaluatorUnavailable
from tasks.screening import remember
from tasks.spool import Site, SpoolEvaluator
from tasks.task import Task

ROOT = Path(__file__).parent.parent
PYTHON_TOML = TOML.replace('["cpp"]', '["python"]')
PYTHON = """
def rowscale(x, s, y, positive, m, n):
    y.copy_(x * s[:, None])
    positive.copy_((x > 0).sum(1))
"""
FATAL = REFERENCE.replace("def reference(x, s):", "def reference(x, s):\n    import os\n    os.kill(os.getpid(), 9)")
SEED = """
#include <cstdint>
extern "C" void rows(const float *x, const float *y, float *out, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; ++i) {
        out[i] = 0;
        for (int64_t j = 0; j < columns; ++j)
            out[i] += (x[i * columns + j] - y[i * columns + j]) * (x[i * columns + j] - y[i * columns + j]);
    }
}
"""
STEADY = re.sub(r"variants = .*", "", INTENTS)
"""Each intent has one program, so that what a run does next depends on no timing."""

pytestmark = pytest.mark.timeout(600)


def bare_environment() -> dict[str, str]:
    """The environment of a machine that knows of no checkout."""
    return {name: value for name, value in environment().items() if name != "PYTHONPATH"}


def work(spool: Path, out: Path, *options: str, python: str = sys.executable, checkout: Path = ROOT) -> Any:
    """The worker has ended."""
    return subprocess.run(
        [python, "-m", "tasks.worker", "--spool", str(spool), "--out", str(out), *options],
        cwd=checkout, env=bare_environment(), capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip


class Place:
    """A folder with a tiny task, a spool and runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.spool, self.out = folder, folder / "spool", folder / "out"
        self("new", "rows")
        toml = folder / "rows" / "task.toml"
        text = toml.read_text()
        for before, after in SMALL.items():
            text = text.replace(before, after)
        toml.write_text(text)
        (folder / "rows" / "playbook" / "cpp" / "intents.toml").write_text(STEADY)

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        out, errors, code = io.StringIO(), io.StringIO(), 0
        try:
            with chdir(self.folder), redirect_stdout(out), redirect_stderr(errors):
                main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
        return subprocess.CompletedProcess(list(arguments), code, out.getvalue(), errors.getvalue())

    def run(self, *options: object) -> subprocess.CompletedProcess[str]:
        return self("run", "./rows", "--stagnation", 1, "--threads", 1, *options)

    def spooled(self, *options: object) -> subprocess.CompletedProcess[str]:
        return self.run("--evaluator", "spool", "--spool", "spool", "--hardware", "a far machine", *options)

    def requests(self) -> list[str]:
        return sorted(path.name for path in (self.spool / "requests").glob("*.json"))

    def events(self, run: str = "last") -> list[dict[str, Any]]:
        runs = Runs(self.folder / ".ksearch" / "ksearch.db")
        try:
            found = runs.find(run)
            return [event.model_dump() for event in runs.archive.events(found, "main")]
        finally:
            runs.close()


@pytest.fixture(autouse=True)
def no_choices_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def spooled(task: Task, spool: Path, march: str = "native") -> SpoolEvaluator:
    return SpoolEvaluator(task.narrowed(), Site(spool, "a far machine", "cpu", march, 1))


def answers(evaluator: SpoolEvaluator, task: Task, out: Path, programs: Sequence[Program]) -> list[Any]:
    known = {program.id: program for program in programs}
    found = [checked(path, task, evaluator, known.__getitem__) for path in envelope.listed(out / "answers")]
    return sorted(found, key=lambda answer: -1 if answer.program is None else programs.index(answer.program))


def unscored(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in event.items() if name != "score"} for event in events]


def test_a_search_through_the_spool_does_what_a_local_one_does(place: Place) -> None:
    said = place.spooled("--budget", 3)
    parked = 0
    while said.returncode == 75:
        parked += 1
        assert "1 request waits in" in said.stderr
        assert len(place.requests()) == 1
        worked = work(place.spool, place.out)
        assert (worked.returncode, worked.stdout.splitlines()[-1]) == (0, "1 done, 0 left"), worked.stdout
        said = place("collect", "last", "out")
    assert (said.returncode, parked) == (0, 4), "for the baseline, two programs and the held-out inputs"
    assert "Best: J = " in said.stdout
    assert "[verdict reused]" not in said.stdout
    receipt = json.loads(place("show", "last", "n1", "--json").stdout)
    text = json.dumps(receipt)
    assert "a far machine" not in text, "the receipt names the machine as it is"
    assert '"evaluator": "cpu-' in text
    again = place("collect", "last", "out", "--no-resume")
    assert again.stdout.startswith("0 new, 6 here before; requests still awaited: 0"), again.stdout
    assert place("collect", "last", "out").returncode == 0, "the run is done and stays so"
    assert place.run("--budget", 3).returncode == 0
    assert unscored(place.events()) == unscored(place.events(str(json.loads(place("runs", "--json").stdout)[1]["run"])))


def test_the_samples_of_an_attempt_take_one_round_trip(place: Place) -> None:
    (place.folder / "rows" / "playbook" / "cpp" / "intents.toml").write_text(INTENTS)
    seed = Program(language="cpp", source=SEED)
    (place.folder / "seed.cpp").write_text(SEED)
    place.spooled("--budget", 3, "--samples", 3, "--seed-program", "seed.cpp")
    work(place.spool, place.out)
    assert "1 request waits in" in place("collect", "last", "out").stderr
    assert f"program {seed.id}" in work(place.spool, place.out).stdout
    assert "3 requests wait in" in place("collect", "last", "out").stderr
    assert len(place.requests()) == 3
    assert work(place.spool, place.out, "--limit-minutes", "0").returncode == 75
    assert work(place.spool, place.out).stdout.endswith("3 done, 0 left\n")
    place("collect", "last", "out")
    tried = [event for event in place.events() if event["kind"] == "attempt"]
    assert [event["verdict"] for event in tried] == ["passed"] * 4
    assert [event["node"] for event in tried] == ["n0", "n1", "n1", "n1"]
    assert len({event["program_id"] for event in tried}) == 4
    assert tried[0]["program_id"] == seed.id


def test_killed_where_it_parks_a_search_asks_for_the_same_again(place: Place) -> None:
    run = subprocess.Popen(
        [KSEARCH, "run", "./rows", "--evaluator", "spool", "--spool", "spool"], cwd=place.folder, env=environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: bool(place.requests()), "the request is written")
    run.kill()
    run.wait()
    asked = place.requests()
    assert place("resume", "last").returncode == 75
    assert place.requests() == asked
    work(place.spool, place.spool)
    assert place("collect", "last", "spool").returncode == 75, "both folders may be one; it parks at a program"
    assert len(place.requests()) == 1
    assert place.requests() != asked


def test_what_is_no_answer_to_this_run_is_named_and_left(place: Place) -> None:
    place.spooled("--budget", 1)
    work(place.spool, place.out)
    (good,) = (place.out / "answers").glob("*.json")
    text = good.read_text()
    folder = place.folder / "bad"
    folder.mkdir()
    stated = json.loads(text)
    stated["results"]["baseline"]["reply"]["timings"][0]["latency_us"]["eager"] = 1e-3
    wrong = {
        "cut off": text[: len(text) // 2],
        "altered": json.dumps(stated),
        "renamed": text,
        "no object": "[]",
    }
    names = ("cut off", "altered")
    for case, content in wrong.items():
        path = folder / (good.name if case in names else f"{case}.json")
        path.write_text(content)
        said = place("collect", "last", "bad", "--no-resume")
        assert f"skipped {path.name}" in said.stderr, case
        assert said.stdout.startswith("0 new, 0 here before; requests still awaited: 1"), case
    for change in ({"workload": "another"}, {"strongest": "cdist"}, {"latency_us": {"eager": -1.0}}, {"more": 1}):
        plausible = json.loads(text)["results"]
        plausible["baseline"]["reply"]["timings"][0] |= change
        envelope.write_answer(place.folder / "forged", good.stem, plausible)
        assert "what it says cannot be true" in place("collect", "last", "forged", "--no-resume").stderr
    came = place("collect", "last", "out", "--no-resume")
    assert came.stdout.startswith("1 new, 0 here before; requests still awaited: 0")
    place.spooled("--budget", 1, "--march", "x86-64")
    other = place("collect", "last", "out", "--no-resume")
    assert f"skipped {good.name}: it answers a request of another run" in other.stderr
    assert other.stdout.startswith("0 new, 0 here before; requests still awaited: 1")


def test_collect_is_for_runs_with_a_spool(place: Place) -> None:
    assert place.run("--budget", 1).returncode == 0
    said = place("collect", "last", ".")
    assert (said.returncode, "evaluates on this machine" in said.stderr) == (2, True)
    assert place("run", "./rows", "--evaluator", "spool").returncode == 2


@pytest.mark.parametrize(
    ("toml", "source"), [(TOML, program()), (PYTHON_TOML, Program(language="python", source=PYTHON))]
)
def test_a_machine_with_nothing_but_torch_can_serve(tmp_path: Path, toml: str, source: Program) -> None:
    task = write_task(tmp_path / "task", toml=toml)
    evaluator = spooled(task, tmp_path / "spool")
    for ask in (evaluator.baseline, lambda: evaluator.prepare([source]), lambda: evaluator.held_out(source)):
        try:
            ask()
        except EvaluatorUnavailable:
            continue
    python = bare_python(tmp_path / "venv")
    (tmp_path / "checkout").mkdir()
    shutil.copytree(ROOT / "tasks", tmp_path / "checkout" / "tasks")
    worked = work(tmp_path / "spool", tmp_path / "out", python=python, checkout=tmp_path / "checkout")
    assert worked.returncode == 0, worked.stdout + worked.stderr
    assert worked.stdout.splitlines()[1].startswith("1/3 baseline of rowscale"), "what others wait for comes first"
    baseline, *measured = answers(evaluator, task, tmp_path / "out", [source])
    assert [timing.strongest for timing in baseline.timings] == ["eager", "eager"]
    verdicts = {purpose: verdict for answer in measured for purpose, (verdict, _) in answer.verdicts.items()}
    assert sorted(verdicts) == ["attempt", "confirm", "held_out"]
    for verdict in verdicts.values():
        assert isinstance(verdict, Passed), verdict
        assert verdict.receipt is not None
        assert verdict.receipt.seeds
        assert verdict.receipt.program_id == source.id
    assert str(tmp_path) not in json.dumps(evaluator.program_request(source)), "nothing of this machine's paths"


def bare_python(folder: Path) -> str:
    """An interpreter that has PyTorch and what it needs, and none of our other packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=PATIENCE_S)
    (site,) = folder.glob("lib/python*/site-packages")
    have = Path(sysconfig.get_paths()["purelib"])
    for name in ("torch", "torchgen", "functorch", "typing_extensions.py", "sympy", "mpmath", "networkx", "jinja2",
                 "markupsafe", "fsspec", "filelock", "numpy", "numpy.libs", "setuptools"):  # fmt: skip
        if (have / name).exists():
            (site / name).symlink_to(have / name)
    python = str(folder / "bin" / "python")
    for module in ("pydantic", "langgraph", "state"):
        lacking = [python, "-c", f"import {module}"]
        assert subprocess.run(lacking, cwd=folder, env=bare_environment(), stderr=subprocess.DEVNULL).returncode == 1
    return python


@pytest.fixture
def several(tmp_path: Path) -> tuple[SpoolEvaluator, list[Program], Task]:
    """Three requests for programs."""
    task = write_task(tmp_path / "task")
    evaluator = spooled(task, tmp_path / "spool")
    programs = [program(extra=f"// {index}") for index in range(3)]
    evaluator.prepare(programs)
    return evaluator, programs, task


def test_killed_and_started_again_the_worker_keeps_what_it_had(
    tmp_path: Path, several: tuple[SpoolEvaluator, list[Program], Task]
) -> None:
    spool, out = tmp_path / "spool", tmp_path / "out"
    worker = subprocess.Popen(
        [sys.executable, "-m", "tasks.worker", "--spool", spool, "--out", out], cwd=ROOT, env=environment(),
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    until(lambda: bool(list((out / "answers").glob("*.json"))), "something is answered")
    worker.kill()
    worker.wait()
    had = {path.name: envelope.read_answer(path) for path in envelope.listed(out / "answers")}
    assert had
    assert next(iter(had.values())).keys() <= {"attempt", "confirm"}
    worked = work(spool, out)
    assert worked.returncode == 0, worked.stdout + worked.stderr
    evaluator, programs, task = several
    for answer in answers(evaluator, task, out, programs):
        assert sorted(answer.verdicts) == ["attempt", "confirm"]
    for name, results in had.items():
        now = envelope.read_answer(out / "answers" / name)
        assert {purpose: now[purpose] for purpose in results} == results, "nothing that was known is measured again"
    assert "0 pending" in work(spool, out).stdout


def test_told_to_end_the_worker_finishes_what_is_in_flight(
    tmp_path: Path, several: tuple[SpoolEvaluator, list[Program], Task]
) -> None:
    spool, out = tmp_path / "spool", tmp_path / "out"
    worker = subprocess.Popen(
        [sys.executable, "-m", "tasks.worker", "--spool", spool, "--out", out], cwd=ROOT, env=environment(),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: bool(list((out / "answers").glob("*.json"))), "something is answered")
    rival = work(spool, out)
    assert (rival.returncode, "another worker" in rival.stdout) == (75, True)
    worker.send_signal(signal.SIGTERM)
    said, _ = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 75
    assert "stopping after the evaluation in flight" in said
    assert re.search(r"^[012] done, [123] left$", said, re.MULTILINE), said
    partial = [envelope.read_answer(path) for path in envelope.listed(out / "answers")]
    assert partial and all("attempt" in results for results in partial)


def test_a_request_that_ends_the_trusted_process_is_answered_and_the_batch_goes_on(
    tmp_path: Path, several: tuple[SpoolEvaluator, list[Program], Task]
) -> None:
    fatal = write_task(tmp_path / "fatal", reference=FATAL)
    evaluator, suspect = spooled(fatal, tmp_path / "spool"), program(extra="// suspect")
    with pytest.raises(EvaluatorUnavailable):
        evaluator.baseline()
    evaluator.prepare([suspect])
    (tmp_path / "spool" / "requests" / "notes.json").write_text("{}")
    copied = tmp_path / "spool" / "requests" / f"{envelope.digest(several[0].program_request(several[1][0]))}.json"
    shutil.copy(copied, copied.with_name(f"{'0' * 24}.json"))
    hollow = {**evaluator.baseline_request(), "steps": [{"do": "evaluate"}]}
    envelope.write(tmp_path / "spool" / "requests" / f"{envelope.digest(hollow)}.json", hollow)
    worked = work(tmp_path / "spool", tmp_path / "out")
    assert worked.returncode == 0, worked.stdout + worked.stderr
    assert f"skipped {envelope.digest(hollow)}.json: it is not a request" in worked.stdout
    assert "skipped notes.json: it is not a request" in worked.stdout
    assert f"skipped {'0' * 24}.json: its name is not the hash" in worked.stdout
    assert worked.stdout.endswith("5 done, 0 left\n")
    own = [evaluator.baseline_request(), evaluator.program_request(suspect)]
    paths = [tmp_path / "out" / "answers" / f"{envelope.digest(request)}.json" for request in own]
    raced, tried = (checked(path, fatal, evaluator, {suspect.id: suspect}.__getitem__) for path in paths)
    assert "failed twice: the trusted process was ended by signal 9" in raced.faults[0]
    verdict, _ = tried.verdicts["attempt"]
    assert isinstance(verdict, Crashed)
    assert (verdict.signal, verdict.receipt is not None) == ("harness", True)
    assert "ended by signal 9" in verdict.message
    with pytest.raises(BadFile, match="another task"):
        checked(tmp_path / "out" / "answers" / copied.name, fatal, evaluator, {}.__getitem__)


@pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="there is a GPU")
def test_what_this_machine_lacks_the_device_for_is_left_pending(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", toml=PYTHON_TOML).narrowed("python", "cuda")
    evaluator = SpoolEvaluator(task, Site(tmp_path / "spool"))
    with pytest.raises(EvaluatorUnavailable, match="1 request waits"):
        evaluator.baseline()
    deadly = write_task(tmp_path / "deadly", reference=REFERENCE + "\nimport os\nos.kill(os.getpid(), 9)\n")
    for other in (deadly, write_task(tmp_path / "good")):
        with pytest.raises(EvaluatorUnavailable):
            spooled(other, tmp_path / "spool").baseline()
    worked = work(tmp_path / "spool", tmp_path / "out")
    assert (worked.returncode, "no CUDA device" in worked.stdout) == (75, True), worked.stdout
    assert "ended by signal 9 during 'load'" in worked.stdout
    assert worked.stdout.endswith("1 done, 2 left\n"), "what can be done is done"
    assert len(envelope.listed(tmp_path / "out" / "answers")) == 1
    assert "1 pending" in work(tmp_path / "spool", tmp_path / "out", "--device", "cuda").stdout


def test_only_what_no_compiler_can_take_is_refused_here(tmp_path: Path) -> None:
    evaluator = spooled(write_task(tmp_path / "task"), tmp_path / "spool", "x86-64")
    broken, vectors = program("return nonsense;"), program("_mm512_bogus();", "#include <immintrin.h>\n")
    verdict = evaluator.evaluate(broken)
    assert isinstance(verdict, CompileError)
    assert "nonsense" in verdict.message
    assert verdict.receipt is not None
    evaluator.prepare([broken, vectors])
    assert len(evaluator.waiting()) == 1
    with pytest.raises(EvaluatorUnavailable):
        evaluator.confirm(vectors)


def test_python_is_refused_only_where_the_other_machine_reads_no_newer_one(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", toml=PYTHON_TOML)
    broken = Program(language="python", source="def rowscale(:\n")
    for version, refused in (("3.99.0", False), ("", False), (f"3.{sys.version_info.minor}.0", True)):
        spool = tmp_path / f"spool{version}"
        spool.mkdir()
        remember(spool, {"python": version} if version else {})
        evaluator = spooled(task, spool)
        evaluator.prepare([broken])
        assert len(evaluator.waiting()) == (not refused), version


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_cuda_is_refused_for_the_gpu_that_answered_before(tmp_path: Path) -> None:
    task = write_task(tmp_path / "task", toml=TOML.replace('["cpp"]', '["cuda"]')).narrowed()
    kernel = "#include <torch/extension.h>\n__global__ void k(float *x) { x[0] = undeclared; }\n"
    broken = Program(language="cuda", source=kernel + 'PYBIND11_MODULE(a, m) { m.def("rowscale", [] {}); }\n')
    spool = tmp_path / "spool"
    SpoolEvaluator(task, Site(spool)).prepare([broken])
    assert len(envelope.listed(spool / "requests")) == 1, "which GPU it is for is not known yet"
    remember(spool, {"compute capability": "9.0"})
    verdict = SpoolEvaluator(task, Site(spool)).evaluate(broken)
    assert isinstance(verdict, CompileError)
    assert "undeclared" in verdict.message
