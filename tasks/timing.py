"""Arithmetic of interleaved timings: pairs of latencies in, one ratio and its noise out. Standard library only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

_SLACK_US = 100.0
_SLACK = 0.05
_GROSS_US = 8000.0
_NOISE_FLOOR = 0.002
_MAD_TO_SIGMA = 1.4826
_MEDIAN_TO_MEAN = 1.2533
"""Standard error of a median over that of a mean, for normal samples."""


@dataclass(frozen=True)
class Pair:
    """The two latencies of one round, on the same inputs."""

    candidate_us: float
    baseline_us: float


def believed(own_us: float, wall_us: float) -> float:
    """A candidate's own time, where it agrees with the trusted wall clock; else the wall clock less the slack."""
    return max(own_us, wall_us - max(_SLACK_US, _SLACK * wall_us))


def grossly_short(own_us: float, wall_us: float) -> bool:
    """The candidate claims less than half of a time that no pipe or scheduler explains."""
    return own_us < wall_us / 2 and wall_us - own_us > _GROSS_US


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


def score_noise(noises: list[float]) -> float:
    """Relative standard error of a geometric mean of independent ratios."""
    return math.sqrt(sum(noise * noise for noise in noises)) / len(noises)


def drift(baseline_us: float, stored_us: float) -> float:
    """How far a baseline is from its stored latency, relative, in either direction."""
    return max(baseline_us / stored_us, stored_us / baseline_us) - 1.0
