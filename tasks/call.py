"""One call of a candidate's entry point, as two clocks saw it. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.faults import forged, rejected


@dataclass(frozen=True)
class Call:
    """One call of the entry point, on both clocks."""

    own_us: float
    wall_us: float
    late_us: float = 0.0
    """What still ran on the device when the entry point's own stream was done."""
    host_us: float = 0.0
    """Until the entry point had returned, its work perhaps only launched."""


def reported(answer: bytes, wall_us: float, during: str, more_us: float) -> Call:
    """What the reply claims, if it can be true on the trusted clock; otherwise Fault. `more_us` goes to both."""
    try:
        own_us, *rest = (int(word[:20]) / 1000 for word in answer.split()[:3])
    except ValueError:
        raise forged(during) from None
    if not 0 < own_us <= wall_us or any(not 0 <= value <= wall_us for value in rest):
        raise rejected(
            "clock_mismatch",
            f"the program's process reported {own_us:g} us {during}, which took {wall_us:g} us on the wall clock",
        )  # fmt: skip
    return Call(own_us + more_us, wall_us + more_us, *rest)
