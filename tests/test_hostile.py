"""Programs that cheat or do harm: each gets its own verdict, nothing of it is left, and the next one is judged as ever.

The first line of each program says which verdicts are right. `pytest -s` prints the table.

What is bounded but not closed: work that a thread finishes within some 20 us after the reply to a call is not seen, a
claimed time may fall short of the true one by about three replies, and results that are
remembered by content are noticed from six rounds on (before that, too, they gain nothing: timed inputs are fresh).
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from state.program import Program
from state.verdict import Passed, Verdict
from tasks.isolation import alive, descendants
from tasks.local import LocalEvaluator
from tasks.task import load_task

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(__file__).parent / "programs" / "hostile" / "cpp"
HONEST = (PROGRAMS / "honest.h").read_text()
FAMILIES = sorted(path.stem for path in PROGRAMS.glob("*.cpp"))
GROUP = 6
"""After so many hostile programs a good one is judged."""
NEEDS = {
    "kills_parent": "pid", "kill_everything": "pid", "fills_disk": "read-only files",
    "undoes_mounts": "read-only files", "opens_network": "network",
}  # fmt: skip
"""What of the enclosure a verdict depends on; elsewhere the program may do as it likes."""
WORKLOAD = """
[[workloads]]
name = "small"
dims = { m = 32, n = 512, k = 1024 }
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEvaluator]:
    """An evaluator of int8_gemm on one small workload, against one baseline."""
    folder = tmp_path_factory.mktemp("tasks") / "int8_gemm"
    shutil.copytree(ROOT / "tasks" / "library" / "int8_gemm", folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "task.toml").read_text()
    text = re.sub(r"\[\[(workloads|held_out)\]\]\n(.+\n)+", "", text) + WORKLOAD
    text = re.sub(r"baselines = .*", 'baselines = ["dequantised"]', text)
    text = text.replace("call_s = 5.0", "call_s = 1.5").replace("memory_mb = 512", "memory_mb = 200")
    (folder / "task.toml").write_text(text)
    made = LocalEvaluator(load_task(folder).narrowed("cpp"), rounds=8)
    yield made
    made.close()


@pytest.fixture(scope="module")
def table() -> Iterator[list[tuple[str, str, float]]]:
    """Rows of family, verdict and seconds, printed at the end."""
    rows: list[tuple[str, str, float]] = []
    yield rows
    print(f"\n{'family':<34}{'verdict':<32}{'seconds':>8}")
    for family, verdict, seconds in rows:
        print(f"{family:<34}{verdict:<32}{seconds:>8.2f}")


def source(family: str) -> str:
    return (PROGRAMS / f"{family}.cpp").read_text().replace('#include "honest.h"', HONEST)


def expected(family: str) -> list[str]:
    first = source(family).splitlines()[0]
    return first.removeprefix("// expect: ").split("|")


def short(verdict: Verdict) -> str:
    """kind:reason, whatever the reason is called."""
    plain = verdict.model_dump()
    reasons = [plain[key] for key in ("reason", "signal", "stage") if key in plain]
    return ":".join([verdict.kind, *reasons])


def good_program() -> Program:
    return Program(language="cpp", source=f"{HONEST}\nENTRY {{ GEMM; }}\n")


def test_an_honest_program_passes_in_a_full_enclosure(judge: LocalEvaluator) -> None:
    verdict = judge.evaluate(good_program())
    assert isinstance(verdict, Passed), verdict
    assert verdict.receipt
    assert "no capabilities" in verdict.receipt.isolation


@pytest.mark.parametrize("family", FAMILIES)
def test_a_hostile_program_gets_its_own_verdict(
    judge: LocalEvaluator, table: list[tuple[str, str, float]], family: str
) -> None:
    worker, free = judge.trusted_pid, shutil.disk_usage(PROGRAMS).free
    began = time.monotonic()
    verdict = judge.evaluate(Program(language="cpp", source=source(family)))
    table.append((family, short(verdict), time.monotonic() - began))
    assert verdict.receipt
    if family in NEEDS and verdict.receipt.isolation and NEEDS[family] not in verdict.receipt.isolation:
        pytest.skip(f"this machine has no {NEEDS[family]} in the enclosure")
    assert short(verdict) in expected(family), verdict
    assert judge.trusted_pid == worker or worker is None
    assert judge.trusted_pid is not None
    assert not [pid for pid in descendants(judge.trusted_pid) if alive(pid)]
    assert free - shutil.disk_usage(PROGRAMS).free < 500 << 20
    if FAMILIES.index(family) % GROUP == GROUP - 1 or family == FAMILIES[-1]:
        assert isinstance(judge.evaluate(good_program()), Passed)


def test_no_family_is_missing() -> None:
    assert set(FAMILIES) >= {
        "pointer_cache", "content_cache", "previous_output", "threads_after_return", "threads_spin_against_baseline",
        "read_expected_output", "write_reference_memory", "guess_seed", "precision_downgrade", "mutated_input",
        "forged_verdict", "forged_clock", "early_exit_0", "daemon_setsid", "kills_parent", "kill_everything",
        "fills_disk", "memory_hog", "many_processes", "endless_loop", "segfault", "stack_smash", "survives_sigsegv",
        "writes_guard_zone", "closes_control_socket",
    }  # fmt: skip
