"""Each kind of bad program has its own verdict, leaves nothing running, and the next program is judged as ever."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_task import CALL_RIGHT, program

from state.program import Program
from state.verdict import CompileError, Crashed, Passed, Rejected, TimedOut, Verdict, WrongResult
from tasks.isolation import alive, descendants
from tasks.local import LocalEvaluator

BAD = Path(__file__).parent / "programs" / "int8_gemm_bad"


@pytest.fixture(autouse=True)
def nothing_left_running(evaluator: LocalEvaluator) -> Iterator[None]:
    """After each evaluation the trusted process is the only one that is left."""
    yield
    assert {pid for pid in descendants(os.getpid()) if alive(pid)} <= {evaluator.trusted_pid}


def test_a_right_program_passes_with_a_full_receipt(evaluator: LocalEvaluator) -> None:
    verdict = evaluator.evaluate(program())
    assert isinstance(verdict, Passed), verdict
    assert [timing.workload for timing in verdict.timings] == ["wide", "tall"]
    assert {timing.baseline for timing in verdict.timings} == {"eager"}
    assert all(timing.latency_us > 0 and timing.baseline_us > 0 for timing in verdict.timings)
    receipt = verdict.receipt
    assert receipt is not None
    assert receipt.program_id == program().id
    assert receipt.rounds >= 3
    assert len(set(receipt.seeds)) == len(receipt.seeds) >= 2 * receipt.rounds
    assert "guard zones" in receipt.checks
    assert receipt.isa.startswith("-march=native: ")
    assert receipt.isa in receipt.hardware
    assert {"compiler", "torch", "python", "system"} <= set(receipt.versions)
    assert "-fopenmp" in receipt.compiler_flags
    assert receipt.compile_s > 0


def test_fresh_seeds_every_time(evaluator: LocalEvaluator) -> None:
    first, second = evaluator.evaluate(program()).receipt, evaluator.evaluate(program()).receipt
    assert first and second
    assert not set(first.seeds) & set(second.seeds)


def test_confirmation_takes_more_rounds(evaluator: LocalEvaluator) -> None:
    ordinary, longer = evaluator.evaluate(program()), evaluator.confirm(program())
    assert isinstance(longer, Passed)
    assert ordinary.receipt and longer.receipt
    assert longer.receipt.rounds > ordinary.receipt.rounds


def test_held_out_runs_the_held_out_workloads(evaluator: LocalEvaluator) -> None:
    verdict = evaluator.held_out(program())
    assert isinstance(verdict, Passed)
    assert [timing.workload for timing in verdict.timings] == ["hidden"]


def test_compile_error_shows_the_line(evaluator: LocalEvaluator) -> None:
    verdict = evaluator.evaluate(program("int x_ = undeclared_name;"))
    assert isinstance(verdict, CompileError)
    assert "undeclared_name" in verdict.message
    assert verdict.message.startswith("kernel.cpp:")
    assert "/tmp" not in verdict.message


def test_undefined_function_is_a_compile_error(evaluator: LocalEvaluator) -> None:
    verdict = evaluator.evaluate(program("elsewhere(y);", "void elsewhere(float *);"))
    assert isinstance(verdict, CompileError)
    assert "undefined reference to `elsewhere(float*)'" in verdict.message


def test_missing_entry_point_names_the_prototype(evaluator: LocalEvaluator) -> None:
    verdict = evaluator.evaluate(Program(language="cpp", source="int other() { return 1; }\n"))
    assert isinstance(verdict, CompileError)
    assert 'extern "C" void rowscale(const float *x' in verdict.message


def test_cpp_linkage_is_explained(evaluator: LocalEvaluator) -> None:
    source = program().source.replace('extern "C" ', "")
    verdict = evaluator.evaluate(Program(language="cpp", source=source))
    assert isinstance(verdict, CompileError)
    assert 'put extern "C" before it' in verdict.message


@pytest.mark.parametrize(
    ("body", "signal"),
    [
        ("volatile float *p = nullptr; *p = 1;", "SIGSEGV"),
        ("__builtin_trap();", "SIGILL"),
        ("volatile int zero = 0; positive[0] = int(m) / zero;", "SIGFPE"),
        ("abort();", "SIGABRT"),
        ('throw "no";', "SIGABRT"),
        (f"{CALL_RIGHT} exit(0);", "exit"),
        ("static int calls = 0; right(x, s, y, positive, m, n); if (++calls == 5) _exit(3);", "exit"),
        ("for (;;) memset(new char[8 << 20], 1, 8 << 20);", "out_of_memory"),
        ("char *volatile p = new char[1ull << 40]; *p = 1;", "out_of_memory"),
    ],
)
def test_a_crash_has_its_name(evaluator: LocalEvaluator, body: str, signal: str) -> None:
    verdict = evaluator.evaluate(program(body))
    assert isinstance(verdict, Crashed), verdict
    assert verdict.signal == signal
    assert "workload 'wide'" in verdict.message or "workload 'tall'" in verdict.message


def test_last_words_are_in_the_crash_message(evaluator: LocalEvaluator) -> None:
    verdict = evaluator.evaluate(program('fprintf(stderr, "tile 7 is odd\\n"); abort();'))
    assert isinstance(verdict, Crashed)
    assert "tile 7 is odd" in verdict.message


def test_a_flood_of_output_does_no_harm(evaluator: LocalEvaluator) -> None:
    verdict = evaluator.evaluate(program(f'for (int i = 0; i < 40000; i++) puts("{"x" * 100}"); {CALL_RIGHT}'))
    assert isinstance(verdict, Passed), verdict


def test_endless_loop(evaluator: LocalEvaluator) -> None:
    verdict = evaluator.evaluate(program("volatile bool on = true; while (on) {}"))
    assert isinstance(verdict, TimedOut)
    assert (verdict.stage, verdict.limit_s) == ("run", 1.5)
    assert "'wide'" in verdict.message


def wrong(verdict: Verdict) -> WrongResult:
    assert isinstance(verdict, WrongResult), verdict
    return verdict


def test_wrong_values_are_counted_and_shown(evaluator: LocalEvaluator) -> None:
    verdict = wrong(evaluator.evaluate(program(f"{CALL_RIGHT} y[3] += 1; y[n + 5] += 2;")))
    assert (verdict.reason, verdict.workload) == ("mismatch", "wide")
    assert "2 of 24000 elements" in verdict.message
    assert "Worst absolute error 2" in verdict.message
    assert "[0, 3] expected" in verdict.message
    assert "Only rows 0..1" in verdict.message


def test_wrong_shape_is_recognised(evaluator: LocalEvaluator) -> None:
    body = f"{CALL_RIGHT} static float t[24000]; memcpy(t, y, m * n * 4); for (int64_t i = 0; i < m; i++) "
    verdict = wrong(evaluator.evaluate(program(body + "for (int64_t j = 0; j < n; j++) y[j * m + i] = t[i * n + j];")))
    assert "transpose" in verdict.message


def test_a_constant_factor_is_recognised(evaluator: LocalEvaluator) -> None:
    verdict = wrong(evaluator.evaluate(program(f"{CALL_RIGHT} for (int64_t i = 0; i < m * n; i++) y[i] *= 0.5f;")))
    assert "0.5 times what is expected" in verdict.message


def test_nan(evaluator: LocalEvaluator) -> None:
    verdict = wrong(evaluator.evaluate(program(f"{CALL_RIGHT} y[n] = NAN;")))
    assert verdict.reason == "nan"
    assert "first at [1, 0]" in verdict.message


def test_unwritten_rows_are_named(evaluator: LocalEvaluator) -> None:
    verdict = wrong(evaluator.evaluate(program("right(x, s, y, positive, m - 4, n); positive[20] = 0;")))
    assert verdict.reason == "unwritten"
    assert "rows 20..23 of 24" in verdict.message


def test_unwritten_integers_are_noticed(evaluator: LocalEvaluator) -> None:
    body = "static int32_t elsewhere[300]; right(x, s, y, elsewhere, m, n);"
    verdict = wrong(evaluator.evaluate(program(body)))
    assert verdict.reason == "unwritten"
    assert "'positive'" in verdict.message


def test_adding_to_an_output_that_was_never_set(evaluator: LocalEvaluator) -> None:
    verdict = wrong(evaluator.evaluate(program("for (int64_t i = 0; i < m * n; i++) y[i] += x[i] * s[i / n];")))
    assert verdict.reason in ("nan", "unwritten")


def test_outputs_of_an_earlier_call(evaluator: LocalEvaluator) -> None:
    body = f"static bool kept = false; static float first[24000]; {CALL_RIGHT}"
    body += "if (!kept) memcpy(first, y, m * n * 4); kept = true; if (m == 24) memcpy(y, first, m * n * 4);"
    verdict = wrong(evaluator.evaluate(program(body)))
    assert verdict.reason == "mismatch"
    assert "fresh inputs" in verdict.message


def test_the_first_input_of_later_calls_counts_too(evaluator: LocalEvaluator) -> None:
    body = f"static int calls = 0; {CALL_RIGHT} if (++calls > 5) y[0] += 1;"
    verdict = wrong(evaluator.evaluate(program(body)))
    assert "a later call" in verdict.message


@pytest.mark.parametrize(
    ("body", "reason", "word"),
    [
        (f"{CALL_RIGHT} const_cast<float *>(s)[m - 1] += 1;", "mutated_input", "'s'"),
        (f"{CALL_RIGHT} volatile float *end = y + m * n; *end = 0;", "out_of_bounds_write", "after the end of 'y'"),
        (f"{CALL_RIGHT} volatile float *low = y - 3; *low = 0;", "out_of_bounds_write", "before the start of 'y'"),
        (
            f"{CALL_RIGHT} if (!fork()) {{ setsid(); if (fork()) _exit(0); for (;;) pause(); }}",
            "left_process",
            "process",
        ),
        (f"{CALL_RIGHT} if (!fork()) for (;;) pause();", "left_process", "1 process"),
        (f"{CALL_RIGHT} if (!fork()) return;", "left_process", "1 process"),
    ],
)
def test_a_broken_rule_is_rejected(evaluator: LocalEvaluator, body: str, reason: str, word: str) -> None:
    verdict = evaluator.evaluate(program(body))
    assert isinstance(verdict, Rejected), verdict
    assert verdict.reason == reason
    assert word in verdict.message


def test_a_stopped_clock_is_noticed(evaluator: LocalEvaluator) -> None:
    clock = """static int frozen(clockid_t, struct timespec *t) { t->tv_sec = 7; t->tv_nsec = 0; return 0; }
    static void freeze() {
        auto real = reinterpret_cast<unsigned char *>(&clock_gettime);
        auto page = reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(real) & ~uintptr_t(4095));
        mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
        unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
        auto target = reinterpret_cast<uintptr_t>(&frozen);
        memcpy(jump + 2, &target, 8);
        memcpy(real, jump, sizeof jump);
    }"""
    body = f"static bool once = (freeze(), true); (void)once; usleep(10000); {CALL_RIGHT}"
    verdict = evaluator.evaluate(program(body, clock))
    if os.uname().machine == "x86_64":
        assert isinstance(verdict, Rejected), verdict
        assert verdict.reason == "clock_mismatch"


def test_after_all_of_these_a_right_program_still_passes(evaluator: LocalEvaluator) -> None:
    assert isinstance(evaluator.evaluate(program()), Passed)


def test_programs_may_keep_threads_and_scratch_memory(evaluator: LocalEvaluator) -> None:
    body = f"static thread_local std::vector<float> scratch; scratch.resize(m * n); std::thread([&] {{ {CALL_RIGHT} }})"
    verdict = evaluator.evaluate(program(body + ".join();", "\n#include <thread>\n#include <vector>\n"))
    assert isinstance(verdict, Passed), verdict


def test_there_is_one_bad_program_of_each_kind() -> None:
    kinds = {path.stem for path in BAD.glob("*.cpp")}
    assert kinds >= {
        "compile_error", "missing_symbol", "sigsegv", "sigill", "endless_loop", "memory_hog", "wrong_values",
        "wrong_shape", "nan", "unwritten", "mutated_input", "out_of_bounds", "left_process", "exit_zero",
        "cached_output",
    }  # fmt: skip
