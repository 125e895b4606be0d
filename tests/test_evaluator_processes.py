"""Nobody outlives the main process, a lost worker is replaced, and no compiler runs beside a timing."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_task import CALL_RIGHT, REFERENCE, TOML, program, write_task

from state.verdict import CompileError, Passed, TimedOut
from tasks import lock
from tasks.compiler import find_compiler
from tasks.evaluator import EvaluatorUnavailable
from tasks.isolation import alive, descendants
from tasks.local import LocalEvaluator
from tasks.task import TaskError
from tasks.tool import ToolMissing
from tasks.trusted import trusted_environment

ROOT = Path(__file__).resolve().parent.parent
PATIENT = TOML.replace("call_s = 1.5", "call_s = 120")
DAEMON_AND_LOOP = "if (!fork()) { setsid(); if (fork()) _exit(0); for (;;) pause(); } for (;;) pause();"


def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)


def living(root: int) -> set[int]:
    return {pid for pid in descendants(root) if alive(pid)}


def candidates(root: int) -> list[int]:
    """Processes below root that have loaded a program."""
    found = []
    for pid in living(root):
        with contextlib.suppress(OSError):
            if b"kernel.so" in Path(f"/proc/{pid}/maps").read_bytes():
                found.append(pid)
    return found


def inside(folder: Path) -> list[int]:
    """Live processes whose working folder is below this one (the trusted process, candidates, compilers)."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder) in str((process / "cwd").readlink()) and alive(int(process.name)):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def main_process(folder: Path, source: str, ending: str = "") -> subprocess.Popen[bytes]:
    """Another main process that evaluates this source."""
    (folder / "program.cpp").write_text(source)
    script = f"""
from pathlib import Path
from state.program import Program
from tasks.local import LocalEvaluator
from tasks.task import load_task
evaluator = LocalEvaluator(load_task(Path({str(folder)!r})), rounds=3)
evaluator.evaluate(Program(language="cpp", source=Path({str(folder / "program.cpp")!r}).read_text()))
{ending}
"""
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=environment)


def test_kill_9_in_an_evaluation_leaves_no_process(tmp_path: Path) -> None:
    write_task(tmp_path, toml=PATIENT)
    main = main_process(tmp_path, program(DAEMON_AND_LOOP).source)
    until(lambda: len(candidates(main.pid)) >= 2)  # the daemon is a fork of the candidate
    time.sleep(0.2)
    below = living(main.pid)
    assert len(below) == 4  # the worker, the namespace's first process, the candidate, the daemon
    main.kill()
    main.wait()
    until(lambda: not any(alive(pid) for pid in below), 10)


def test_kill_9_in_a_compilation_leaves_no_process(tmp_path: Path) -> None:
    write_task(tmp_path)
    os.mkfifo(tmp_path / "never.h")
    main = main_process(tmp_path, f'#include "{tmp_path / "never.h"}"\n')
    until(lambda: len(living(main.pid)) >= 4)  # shell, its guard, g++, cc1plus
    below = living(main.pid)
    main.kill()
    main.wait()
    until(lambda: not any(alive(pid) for pid in below), 10)


def test_a_main_process_that_just_ends_leaves_no_process(tmp_path: Path) -> None:
    write_task(tmp_path)
    main = main_process(tmp_path, program().source)
    until(lambda: bool(inside(tmp_path)))
    assert main.wait(120) == 0
    assert not inside(tmp_path)
    assert not list(tmp_path.glob("ksearch-*"))


def test_a_killed_worker_means_unavailable_and_the_next_call_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    evaluator = LocalEvaluator(write_task(tmp_path, toml=PATIENT), rounds=3)
    assert isinstance(evaluator.evaluate(program()), Passed)
    worker = evaluator.trusted_pid
    assert worker is not None

    def kill_when_busy() -> None:
        until(lambda: len(candidates(worker)) >= 2)  # the daemon is a fork of the candidate
        time.sleep(0.2)
        os.kill(worker, signal.SIGKILL)

    killer = threading.Thread(target=kill_when_busy)
    killer.start()
    with pytest.raises(EvaluatorUnavailable, match="signal 9"):
        evaluator.evaluate(program(DAEMON_AND_LOOP))
    killer.join()
    until(lambda: not inside(tmp_path))
    assert isinstance(evaluator.evaluate(program()), Passed)
    assert evaluator.trusted_pid != worker
    evaluator.close()


def test_a_worker_that_hangs_is_ended_at_the_deadline(tmp_path: Path) -> None:
    reference = REFERENCE.replace("def reference(x, s):", "def reference(x, s):\n    import time; time.sleep(600)")
    evaluator = LocalEvaluator(write_task(tmp_path, reference), rounds=3, patience_s=2.0)
    with pytest.raises(EvaluatorUnavailable, match="within 2 s"):
        evaluator.evaluate(program())
    assert evaluator.trusted_pid is None
    evaluator.close()


def test_a_fault_of_the_reference_is_named(tmp_path: Path) -> None:
    reference = REFERENCE.replace("return {", 'raise RuntimeError("no such table")\n    return {')
    evaluator = LocalEvaluator(write_task(tmp_path, reference), rounds=3)
    with pytest.raises(TaskError, match=r"reference\.py: make_inputs: RuntimeError: no such table \(line 5\)"):
        evaluator.evaluate(program())
    with pytest.raises(TaskError, match="no such table"):
        evaluator.baseline()
    evaluator.close()


def test_closing_ends_everything(tmp_path: Path) -> None:
    evaluator = LocalEvaluator(write_task(tmp_path), rounds=3)
    evaluator.baseline()
    worker = evaluator.trusted_pid
    assert worker and alive(worker)
    evaluator.close()
    evaluator.close()
    assert not alive(worker)
    with pytest.raises(ValueError, match="closed"):
        evaluator.baseline()


def test_settings_and_secrets_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    evaluator = LocalEvaluator(write_task(tmp_path), rounds=3, threads=1)
    checks = 'if (getenv("OPENAI_API_KEY") || getenv("OMP_WAIT_POLICY")) abort();'
    checks += 'if (strcmp(getenv("OMP_NUM_THREADS"), "1")) abort();'
    verdict = evaluator.evaluate(program(checks + CALL_RIGHT))
    assert isinstance(verdict, Passed), verdict
    assert verdict.receipt
    environment = verdict.receipt.environment
    assert "mmap_threshold=1073741824" in environment["GLIBC_TUNABLES"]
    assert "trim_threshold=8589934592" in environment["GLIBC_TUNABLES"]
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["OMP_WAIT_POLICY"] == "removed (was 'PASSIVE')"
    assert environment["ATEN_CPU_CAPABILITY"] == "avx2"
    assert "ATEN_CPU_CAPABILITY=avx2" in evaluator.hardware
    assert verdict.receipt.threads == 1
    given = trusted_environment(2, dict(os.environ))
    assert not {"OMP_WAIT_POLICY", "OPENAI_API_KEY"} & set(given)
    evaluator.close()


def test_baselines_that_are_wrong_or_fail_are_left_out(evaluator: LocalEvaluator) -> None:
    wide, tall = evaluator.baseline()
    assert (wide.workload, tall.workload) == ("wide", "tall")
    assert wide.strongest == "eager"
    assert set(wide.latency_us) == {"eager"}
    assert "y disagrees with the reference" in wide.errors["wrong"]
    assert re.search(r"reference\.py: raising: NotImplementedError: this build lacks it", wide.errors["raising"])


def test_a_baseline_far_from_its_stored_latency_is_marked(evaluator: LocalEvaluator) -> None:
    fresh = evaluator.baseline()
    stored = tuple(
        timing.model_copy(update={"latency_us": {"eager": 50 * timing.latency_us["eager"]}}) for timing in fresh
    )
    evaluator.use_baseline(stored)
    verdict = evaluator.evaluate(program())
    evaluator.use_baseline(fresh)
    assert isinstance(verdict, Passed)
    assert verdict.drifted
    assert verdict.noise > 0.1
    with pytest.raises(ValueError, match="'other' is no timed formulation"):
        evaluator.use_baseline((fresh[0].model_copy(update={"strongest": "other"}),))


def test_two_threads_may_evaluate_at_once(evaluator: LocalEvaluator) -> None:
    verdicts = []
    threads = [threading.Thread(target=lambda: verdicts.append(evaluator.evaluate(program()))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [verdict.kind for verdict in verdicts] == ["passed", "passed"]


def test_no_compiler_runs_beside_a_timing(evaluator: LocalEvaluator) -> None:
    verdicts = []
    until(lambda: not living(os.getpid()) - {evaluator.trusted_pid})  # what earlier tests left has been reaped
    with lock.timing():
        thread = threading.Thread(target=lambda: verdicts.append(evaluator.evaluate(program("this fails;"))))
        thread.start()
        time.sleep(0.5)
        assert not verdicts
        assert not living(os.getpid()) - {evaluator.trusted_pid}
    thread.join()
    assert isinstance(verdicts[0], CompileError)


def test_compilers_share_the_lock_and_timings_do_not() -> None:
    with lock.compiling(1), lock.compiling(1):
        with pytest.raises(lock.LockTimeout, match=r"timing\.lock"), lock.timing(0.05):
            pass
    with lock.timing(1), pytest.raises(lock.LockTimeout), lock.timing(0.05):
        pass
    with lock.timing(1):
        pass


def test_a_compiler_is_stopped_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    evaluator = LocalEvaluator(write_task(tmp_path, toml=TOML.replace("compile_s = 30.0", "compile_s = 0.5")))
    os.mkfifo(tmp_path / "never.h")
    verdict = evaluator.evaluate(program(extra=f'\n#include "{tmp_path / "never.h"}"\n'))
    assert isinstance(verdict, TimedOut)
    assert (verdict.stage, verdict.limit_s) == ("compile", 0.5)
    until(lambda: set(inside(tmp_path)) == {evaluator.trusted_pid}, 5)  # killed processes take a moment to end
    evaluator.close()


def test_the_instruction_set_follows_march(tmp_path: Path) -> None:
    plain = LocalEvaluator(write_task(tmp_path), march="x86-64" if os.uname().machine == "x86_64" else "armv8-a")
    assert "AVX" not in plain.hardware
    assert "-march=" in plain.hardware
    plain.close()


def test_a_missing_or_unwilling_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolMissing, match="does not accept -march=pdp11"):
        LocalEvaluator(write_task(tmp_path), march="pdp11")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match=r"g\+\+ was not found: install it"):
        find_compiler.__wrapped__("native")


def test_the_worker_needs_nothing_but_torch() -> None:
    modules = "tasks.worker, tasks.batch, tasks.service"
    script = f"import sys, {modules}; sys.exit(bool({{'pydantic', 'langgraph', 'state'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False).returncode == 0
