"""One evaluation inside the trusted process: checks, then interleaved timing rounds. Standard library, torch."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from tasks.call import Call
from tasks.checks import compare, inspect, judged
from tasks.closeness import Tolerance, close
from tasks.faults import Fault, rejected
from tasks.host import Crowd
from tasks.known import Known
from tasks.launcher import Launcher
from tasks.problem import Load, Problem, Tensors, new_seed
from tasks.race import race, timed, warm
from tasks.runner import Runner
from tasks.timing import RESTART_NOISE, score_noise
from tasks.tool import Build
from tasks.track import Track

_MIN_ROUNDS = 3
_ROUNDS_ALONE = 9
_SURE_ROUNDS = 12
"""Rounds after which a track may end because it is sure enough."""
_BARE_EVERY, _MOST_BARE = 3, 16
_SLOW_US = 100_000.0
"""A candidate faster than this makes a second call before any timing, which is compared with the reference too."""
_WATCHED = 0.2
"""Part of the rounds."""
_DRIFT = 0.25
_RETRIES = 3
_RETRY_BUDGETS = 3.0
"""No retry begins after this many budgets have been used up."""
_CHECKS = ("outputs against reference", "outputs of every timed call", "unwritten outputs", "NaN", "inputs unchanged",
           "guard zones", "outputs final on return", "no process left", "still while stopped", "replies",
           "speed on inputs seen before", "clocks agree")  # fmt: skip
_GPU_CHECKS = ("no work left on the device", "roofline floor", "device health")


@dataclass(frozen=True)
class Plan:
    """What an evaluation is to do."""

    workloads: list[str]
    strongest: dict[str, str]
    """Formulation to measure against, per workload; a workload without one is raced first."""
    stored_us: dict[str, float]
    rounds: int
    budget_s: float
    """Seconds for timing rounds beyond the least number of them."""
    sure: float = 0.0
    """Relative standard error of a workload's ratio at which its rounds may end early."""


class Measurement:
    """Checks and times one candidate on some workloads of a problem."""

    def __init__(self, problem: Problem, plan: Plan, known: Known) -> None:
        self.seeds: list[int] = [] if problem.seed is None else [problem.seed]
        self._problem = problem
        self._device = problem.device
        self._plan = plan
        self._known = known
        self._tolerance = problem.tolerance
        self._tracks = [Track(problem.loads[name]) for name in plan.workloads]
        self._raced: list[dict[str, Any]] = []
        self._race_s = 0.0

    def run(self, build: Build, launcher: Launcher) -> dict[str, Any]:
        """The plain verdict, with seeds, rounds and checks; no process is left. ProblemError passes through."""
        extra = [self._problem.loads[name] for name in self._problem.checked]
        self._arena = self._known.arena([*(track.load for track in self._tracks), *extra], self._device.kind)
        self._runner = Runner(self._problem, self._arena, launcher)
        try:
            self._runner.load(build)
            calls = [self._check(track) for track in self._tracks]
            if calls[0].wall_us < _SLOW_US:
                self._check(self._tracks[0])
            for load in extra:
                self._check(Track(load))
            self._warm_up()
            verdict = self._timed_verdict()
        except Fault as fault:
            verdict = fault.verdict
        finally:
            self._runner.close()
            self._known.give_back(self._arena)
        passed = verdict["kind"] == "passed"
        checks = [*_CHECKS, *(_GPU_CHECKS if self._device.kind == "cuda" else ())]
        checks += [f"outputs on {len(extra)} untimed workload(s)"] if extra else []
        return {
            "verdict": verdict,
            "seeds": self.seeds,
            "rounds": min(track.best.rounds if track.best else 0 for track in self._tracks),
            "checks": checks if passed else [],
            "raced": self._raced,
            "race_s": self._race_s,
            "isolation": list(self._runner.enclosure),
        }

    def _check(self, track: Track) -> Call:
        """One call on a workload agrees with the reference."""
        inputs = self._inputs(track.load)
        call = self._call(track, inputs)
        expected = self._problem.reference(track.load, inputs)
        self._compare(track, inputs, expected, self._tolerance)
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
                if (name, track.formulation) not in self._known.warmed:
                    warm(self._problem, track.load, track.formulation)
            self._known.warmed.add((name, track.formulation))
        self._race_s = time.monotonic() - began

    def _inputs(self, load: Load) -> Tensors:
        self.seeds.append(new_seed())
        return self._problem.inputs(load, self.seeds[-1])

    def _call(self, track: Track, inputs: Tensors, cold: bool = True) -> Call:
        """One call of the candidate on these inputs; guards and inputs are intact."""
        self._arena.write(track.load, inputs)
        self._device.settle()
        sleep_us = self._device.sleep_us(track.host_us) if cold else 0.0
        call = self._runner.call(track.load.name, sleep_us, cold)
        track.host_us = call.host_us
        inspect(self._arena, track.load, inputs)
        return call

    def _warm_call(self, track: Track, inputs: Tensors, cold: bool = True) -> Call:
        """One call right after an untimed one on the inputs of the round before.

        On a CPU now and then two: who works on after his reply is watched in the first.
        """
        watched = self._device.kind == "cpu" and (not track.calls or random.random() < _WATCHED)
        for watching in (True, False) if watched else (False,):
            self._arena.write(track.load, track.earlier)
            self._device.settle()
            sleep_us = self._device.sleep_us(track.host_us) if cold else 0.0
            repeated = self._runner.call(track.load.name, sleep_us, cold, watching)
        fresh = self._call(track, inputs, cold)
        if cold:
            track.calls.append((repeated, fresh))
        return fresh

    def _baseline(self, track: Track, inputs: Tensors) -> tuple[float, Tensors]:
        """As `_warm_call`, of the baseline; also what it returned."""
        timed(self._problem, track.load, track.formulation, track.earlier)
        latency_us, result = timed(self._problem, track.load, track.formulation, inputs)
        return latency_us, self._problem.named(track.formulation, track.load, result)

    def _round(self, track: Track) -> None:
        """One call on each side on the same fresh inputs, in alternating order; outputs are compared."""
        inputs = self._inputs(track.load)
        if track.rounds % 2:
            baseline_us, expected = self._baseline(track, inputs)
            call = self._warm_call(track, inputs)
        else:
            call = self._warm_call(track, inputs)
            baseline_us, expected = self._baseline(track, inputs)
        self._compare(track, inputs, expected, self._tolerance.doubled())
        track.earlier, track.previous = inputs, expected
        track.note(call, baseline_us, None if self._device.kind == "cuda" else self._runner.reply_us)
        if self._device.kind == "cuda" and track.rounds % _BARE_EVERY == 1:
            self._bare_round(track)

    def _bare_round(self, track: Track) -> None:
        """A call that nothing of the harness's own hides: what its process claims must agree with the wall clock."""
        inputs = self._inputs(track.load)
        track.bare.append(self._warm_call(track, inputs, cold=False))
        expected = self._problem.reference(track.load, inputs)
        self._compare(track, inputs, expected, self._tolerance)
        track.earlier, track.previous = inputs, expected

    def _compare(self, track: Track, inputs: Tensors, expected: Tensors, tolerance: Tolerance) -> None:
        if judged(self._problem, track.load, inputs, self._arena.outputs(track.load)):
            return
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

    def _rounds(self, tracks: list[Track]) -> None:
        """Enough rounds of each workload, interleaved: as many as fit into the budget, at least three."""
        deadline = time.monotonic() + self._plan.budget_s
        for track in tracks:
            if track.rounds > 1:
                track.pairs.clear()
        pending = list(tracks)
        while pending:
            for track in pending:
                self._round(track)
            late = time.monotonic() > deadline
            pending = [track for track in pending if not self._done(track, late)]

    def _done(self, track: Track, late: bool) -> bool:
        count = len(track.pairs)
        if late:
            return count >= _MIN_ROUNDS
        return count >= self._plan.rounds or (count >= _SURE_ROUNDS and track.sure(self._plan.sure))

    def _timed_verdict(self) -> dict[str, Any]:
        pending, crowd = self._tracks, Crowd(self._runner.pid)
        enough = time.monotonic() + _RETRY_BUDGETS * self._plan.budget_s
        for _ in range(1 + _RETRIES):
            self._rounds(pending)
            for track in pending:
                track.keep_steadier()
            pending = [track for track in pending if track.drift() > _DRIFT]
            if not pending or time.monotonic() > enough:
                break
        for track in self._tracks:
            self._look_again(track)
            track.examine(self._device, self._runner.reply_us, self._runner.replies_vary_us, crowd.here)
        self._look_for_slowing(pending)
        return self._passed({track.load.name for track in pending})

    def _look_again(self, track: Track) -> None:
        """A clock that seems to be short gets more bare calls: now and then the device is slow to change sides."""
        reply_us, vary_us = self._runner.reply_us, self._runner.replies_vary_us
        while track.hidden_us(reply_us, vary_us) and len(track.bare) < _MOST_BARE:
            self._bare_round(track)

    def _look_for_slowing(self, drifted: list[Track]) -> None:
        """On a GPU a baseline that is fast again once the program is dead was slowed by it: Fault."""
        if self._device.kind != "cuda" or not drifted:
            return
        self._runner.close()
        for track in drifted:
            assert track.best is not None
            alone = median(self._baseline(track, track.earlier)[0] for _ in range(_ROUNDS_ALONE))
            if track.best.baseline_us > (1 + _DRIFT) * alone:
                raise rejected(
                    "slows_baseline",
                    f"on workload {track.load.name!r} the baseline takes {track.best.baseline_us:.0f} us beside the "
                    f"program and {alone:.0f} us once its process is dead: it left work on the device",
                )

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
        common = RESTART_NOISE if self._device.kind == "cuda" else 0.0
        noise = score_noise([timing["noise"] for timing in timings], common)
        return {"kind": "passed", "timings": timings, "noise": noise, "drifted": bool(drifted)}


def measure(problem: Problem, plan: Plan, build: Build, launcher: Launcher, known: Known) -> dict[str, Any]:
    """The plain verdict on a build, and what its receipt needs."""
    with torch.no_grad():
        return Measurement(problem, plan, known).run(build, launcher)
