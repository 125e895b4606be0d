"""Arithmetic of interleaved timings: pairs of latencies in, one ratio and its noise out. Standard library only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

_REPLIES = 3.0
"""What a reply costs is the waking of the program's core and its interpreter: it may take three times its median."""
_SLACK = 0.05
_COPYING = 0.1
_GROSS_US = 30.0
_DIFFERENT_US = 40.0
_SOME_CALLS = 6
_NEARLY_ALL = 0.9
"""One call in ten may have met a busy machine."""
_NOISE_FLOOR = 0.002
RESTART_NOISE = 0.01
"""Relative standard deviation between fresh processes of one program on a GPU that no single process shows (H200)."""
_MAD_TO_SIGMA = 1.4826
_MEDIAN_TO_MEAN = 1.2533
"""Standard error of a median over that of a mean, for normal samples."""


@dataclass(frozen=True)
class Pair:
    """The two latencies of one round, on the same inputs."""

    candidate_us: float
    baseline_us: float


def believed(own_us: float, wall_us: float, reply_us: float) -> float:
    """A candidate's own time, where it agrees with the trusted wall clock; else the wall clock less the slack.

    `reply_us` is what a reply costs until it is sent: waking its reader is not in it, nor in `wall_us`.
    """
    return max(own_us, wall_us - _REPLIES * reply_us - _SLACK * wall_us)


def overdue(took_us: float, usual: tuple[float, float], reply_us: float) -> float:
    """Microseconds of a handover of outputs that neither copying them nor chance explains: they are the program's.

    `usual` is what the same handover took before the program was loaded, and how much that varied.
    """
    usual_us, vary_us = usual
    return max(0.0, took_us - (1 + _COPYING) * usual_us - vary_us - _REPLIES * reply_us)


def contradicted(calls: list[tuple[float, float]], reply_us: float) -> bool:
    """Whether no pipe or scheduler explains what a candidate claims in nearly all of these calls (own, wall time)."""
    if len(calls) < _SOME_CALLS:
        return False
    gross = _REPLIES * reply_us + _GROSS_US
    untrue = sum(own < wall / 2 and wall - own > gross for own, wall in calls)
    return untrue >= _NEARLY_ALL * len(calls)


def remembered(calls: list[tuple[float, float]], slack_us: float = 0.0) -> bool:
    """Whether inputs that were seen before took less than half of the time of fresh ones (both in microseconds).

    `slack_us` is what two calls may differ by for other reasons, such as launches that were not hidden wholly.
    """
    if len(calls) < _SOME_CALLS:
        return False
    quick = sum(repeated < fresh / 2 and fresh - repeated > _DIFFERENT_US + slack_us for repeated, fresh in calls)
    return quick >= _NEARLY_ALL * len(calls)


@dataclass(frozen=True)
class Estimate:
    """What the rounds of one workload say."""

    latency_us: float
    baseline_us: float
    noise: float
    """Relative standard error of baseline_us / latency_us."""
    rounds: int


def estimate(pairs: list[Pair]) -> Estimate:
    """The median ratio of the rounds; latency_us is scaled so that the two latencies give that ratio."""
    ratios = [pair.baseline_us / pair.candidate_us for pair in pairs]
    ratio = median(ratios)
    spread = _MAD_TO_SIGMA * median(abs(value - ratio) for value in ratios)
    noise = _MEDIAN_TO_MEAN * spread / ratio / math.sqrt(len(ratios))
    baseline = median(pair.baseline_us for pair in pairs)
    return Estimate(baseline / ratio, baseline, max(noise, _NOISE_FLOOR), len(pairs))


def score_noise(noises: list[float], common: float = 0.0) -> float:
    """Relative standard error of a geometric mean of ratios: errors of their own, and one that they have in common."""
    return math.hypot(math.sqrt(sum(noise * noise for noise in noises)) / len(noises), common)


def drift(baseline_us: float, stored_us: float) -> float:
    """How far a baseline is from its stored latency, relative, in either direction."""
    return max(baseline_us / stored_us, stored_us / baseline_us) - 1.0
