"""One evaluation inside the trusted process: checks, then interleaved timing rounds. Standard library, torch."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from tasks.arena import Arena
from tasks.checks import Tolerance, close, compare, inspect
from tasks.faults import Fault, rejected
from tasks.isolation import wait_until_quiet
from tasks.problem import Load, Problem, Tensors
from tasks.race import new_seed, race, timed, warm
from tasks.runner import Call, Runner
from tasks.timing import Estimate, Pair, believed, contradicted, drift, estimate, remembered, score_noise

_MIN_ROUNDS = 3
_QUIET_S = 0.1
"""Seconds to wait at most until this process's OpenMP threads have stopped spinning."""
_SLOW_US = 100_000.0
"""A candidate faster than this makes a second call before any timing, which is compared with the reference too."""
_DRIFT = 0.25
_RETRIES = 3
_RETRY_BUDGETS = 3.0
"""No retry begins after this many budgets have been used up."""
_CHECKS = ("outputs against reference", "outputs of every timed call", "unwritten outputs", "NaN", "inputs unchanged",
           "guard zones", "outputs final on return", "no process left", "still while stopped", "replies",
           "speed on inputs seen before", "clocks agree")  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """What an evaluation is to do."""

    library: str
    folder: str
    workloads: list[str]
    strongest: dict[str, str]
    """Formulation to measure against, per workload; a workload without one is raced first."""
    stored_us: dict[str, float]
    rounds: int
    budget_s: float
    """Seconds for timing rounds beyond the least number of them."""


@dataclass
class _Track:
    """What is known of one workload so far."""

    load: Load
    formulation: str = ""
    stored_us: float = 0.0
    pairs: list[Pair] = field(default_factory=list)
    calls: list[tuple[Call, Call]] = field(default_factory=list)
    """Of each round the untimed call, on inputs seen before, and the timed one."""
    rounds: int = 0
    earlier: Tensors = field(default_factory=dict)
    """Inputs of the call before."""
    previous: Tensors = field(default_factory=dict)
    """Expected outputs of the call before."""
    best: Estimate | None = None

    def drift(self) -> float:
        assert self.best is not None
        return drift(self.best.baseline_us, self.stored_us)


class Measurement:
    """Checks and times one candidate on some workloads of a problem."""

    def __init__(self, problem: Problem, plan: Plan, warmed: set[tuple[str, str]]) -> None:
        self.seeds: list[int] = []
        self._problem = problem
        self._plan = plan
        self._warmed = warmed
        self._tolerance = Tolerance(problem.atol, problem.rtol)
        self._tracks = [_Track(problem.loads[name]) for name in plan.workloads]
        self._raced: list[dict[str, Any]] = []
        self._race_s = 0.0

    def run(self) -> dict[str, Any]:
        """The plain verdict, with seeds, rounds and checks; no process is left. ProblemError passes through."""
        self._arena = Arena(list(self._problem.loads.values()))
        self._runner = Runner(self._problem, self._arena, self._plan.folder)
        try:
            self._runner.load(self._plan.library)
            calls = [self._check(track) for track in self._tracks]
            if calls[0].wall_us < _SLOW_US:
                self._check(self._tracks[0])
            self._warm_up()
            verdict = self._timed_verdict()
        except Fault as fault:
            verdict = fault.verdict
        finally:
            self._runner.close()
            self._arena.close()
        passed = verdict["kind"] == "passed"
        return {
            "verdict": verdict,
            "seeds": self.seeds,
            "rounds": min(track.best.rounds if track.best else 0 for track in self._tracks),
            "checks": list(_CHECKS) if passed else [],
            "raced": self._raced,
            "race_s": self._race_s,
            "isolation": list(self._runner.enclosure),
        }

    def _check(self, track: _Track) -> Call:
        """One call on a workload agrees with the reference."""
        inputs = self._inputs(track.load)
        call = self._call(track, inputs)
        expected = self._problem.reference(track.load, inputs)
        self._compare(track, expected, self._tolerance)
        track.earlier, track.previous = inputs, expected
        return call

    def _warm_up(self) -> None:
        """Every workload has its baseline, and the baseline is warm. Only right programs get this far."""
        began = time.monotonic()
        for track in self._tracks:
            name = track.load.name
            if name not in self._plan.strongest:
                self._raced.append(race(self._problem, track.load))
                track.formulation = self._raced[-1]["strongest"]
                track.stored_us = self._raced[-1]["latency_us"][track.formulation]
            else:
                track.formulation, track.stored_us = self._plan.strongest[name], self._plan.stored_us[name]
                if (name, track.formulation) not in self._warmed:
                    warm(self._problem, track.load, track.formulation)
            self._warmed.add((name, track.formulation))
        self._race_s = time.monotonic() - began

    def _inputs(self, load: Load) -> Tensors:
        self.seeds.append(new_seed())
        return self._problem.inputs(load, self.seeds[-1])

    def _call(self, track: _Track, inputs: Tensors) -> Call:
        """One call of the candidate on these inputs; guards and inputs are intact."""
        self._arena.write(track.load, inputs)
        wait_until_quiet(_QUIET_S)
        call = self._runner.call(track.load.name)
        inspect(self._arena, track.load, inputs)
        return call

    def _warm_call(self, track: _Track, inputs: Tensors) -> Call:
        """One call right after an untimed one on the inputs of the round before."""
        self._arena.write(track.load, track.earlier)
        wait_until_quiet(_QUIET_S)
        repeated = self._runner.call(track.load.name)
        fresh = self._call(track, inputs)
        track.calls.append((repeated, fresh))
        return fresh

    def _baseline(self, track: _Track, inputs: Tensors) -> tuple[float, Tensors]:
        """As `_warm_call`, of the baseline; also what it returned."""
        timed(self._problem, track.formulation, track.earlier)
        latency_us, result = timed(self._problem, track.formulation, inputs)
        return latency_us, self._problem.named(track.formulation, track.load, result)

    def _note(self, track: _Track, call: Call, baseline_us: float) -> None:
        track.pairs.append(Pair(believed(call.own_us, call.wall_us, self._runner.reply_us), baseline_us))
        track.rounds += 1

    def _round(self, track: _Track) -> None:
        """One call on each side on the same fresh inputs, in alternating order; outputs are compared."""
        inputs = self._inputs(track.load)
        if track.rounds % 2:
            baseline_us, expected = self._baseline(track, inputs)
            call = self._warm_call(track, inputs)
        else:
            call = self._warm_call(track, inputs)
            baseline_us, expected = self._baseline(track, inputs)
        self._compare(track, expected, self._tolerance.doubled())
        track.earlier, track.previous = inputs, expected
        self._note(track, call, baseline_us)

    def _compare(self, track: _Track, expected: Tensors, tolerance: Tolerance) -> None:
        if not track.previous:
            compare(self._arena, track.load, expected, tolerance, "first call on this workload")
            return
        try:
            compare(self._arena, track.load, expected, tolerance, "a later call, on fresh inputs; the first was right")
        except Fault as fault:
            outputs = self._arena.outputs(track.load)
            if all(close(outputs[name], old, tolerance) for name, old in track.previous.items()):
                fault.verdict["message"] += (
                    "\nThe outputs are those of the call before, on other inputs: nothing that was computed from "
                    "the contents of earlier inputs may be reused"
                )
            raise

    def _rounds(self, tracks: list[_Track]) -> None:
        """Enough rounds of each workload, interleaved: as many as fit into the budget, at least three."""
        deadline = time.monotonic() + self._plan.budget_s
        for track in tracks:
            if track.rounds > 1:
                track.pairs.clear()
        while min(len(track.pairs) for track in tracks) < self._plan.rounds:
            enough = min(len(track.pairs) for track in tracks) >= _MIN_ROUNDS
            if enough and time.monotonic() > deadline:
                return
            for track in tracks:
                if not (time.monotonic() > deadline and len(track.pairs) >= _MIN_ROUNDS):
                    self._round(track)

    def _timed_verdict(self) -> dict[str, Any]:
        pending = self._tracks
        enough = time.monotonic() + _RETRY_BUDGETS * self._plan.budget_s
        for _ in range(1 + _RETRIES):
            self._rounds(pending)
            for track in pending:
                _keep_steadier(track)
            pending = [track for track in pending if track.drift() > _DRIFT]
            if not pending or time.monotonic() > enough:
                break
        for track in self._tracks:
            self._doubt(track)
        return self._passed({track.load.name for track in pending})

    def _doubt(self, track: _Track) -> None:
        """Fault where all rounds together say what one call cannot."""
        clocks = [(call.own_us, call.wall_us) for pair in track.calls for call in pair]
        if contradicted(clocks, self._runner.reply_us):
            raise rejected(
                "clock_mismatch",
                f"the time that the program's process reported on workload {track.load.name!r} is less than half of "
                "the wall-clock time in every round",
            )  # fmt: skip
        if remembered([(repeated.own_us, fresh.own_us) for repeated, fresh in track.calls]):
            raise rejected(
                "reused_results",
                f"on workload {track.load.name!r} inputs that were seen before took less than half of the time of "
                "fresh ones: nothing that was computed from the contents of earlier inputs may be reused",
            )  # fmt: skip

    def _passed(self, drifted: set[str]) -> dict[str, Any]:
        timings: list[dict[str, Any]] = []
        for track in self._tracks:
            assert track.best is not None
            widened = max(2 * track.best.noise, track.drift() / 4)
            timings.append({
                "workload": track.load.name,
                "latency_us": track.best.latency_us,
                "baseline_us": track.best.baseline_us,
                "baseline": track.formulation,
                "noise": widened if track.load.name in drifted else track.best.noise,
            })  # fmt: skip
        noise = score_noise([timing["noise"] for timing in timings])
        return {"kind": "passed", "timings": timings, "noise": noise, "drifted": bool(drifted)}


def _keep_steadier(track: _Track) -> None:
    """Of this attempt's estimate and the earlier one, the one whose baseline is nearer to the stored latency."""
    earlier, fresh = track.best, estimate(track.pairs)
    track.best = fresh
    if earlier is not None and drift(earlier.baseline_us, track.stored_us) < track.drift():
        track.best = earlier


def measure(problem: Problem, request: dict[str, Any], warmed: set[tuple[str, str]]) -> dict[str, Any]:
    """The reply to an evaluation request."""
    with torch.inference_mode():
        return Measurement(problem, Plan(**request), warmed).run()
