"""What is known of one workload while a candidate is measured, and whether its clock can be believed."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from tasks.call import Call
from tasks.device import Device
from tasks.faults import rejected
from tasks.problem import Load, Tensors
from tasks.timing import Estimate, Pair, believed, contradicted, drift, estimate, remembered

_FLOOR = 0.9
"""A latency below this share of the roofline floor is impossible."""
_LATE_US = 20.0
_LATE = 0.1
_SLACK_US = 80.0
_UNHIDDEN = 0.25
"""Of the time that launches take: how far it may differ between two calls."""
_HIDDEN = 0.25
"""Of a latency: what a program may hide from its own clock before it is rejected."""


@dataclass
class Track:
    """One workload: its baseline, its timed pairs, and the calls that test the program's clock."""

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
    host_us: float = 0.0
    """How long the program's launches took in the latest call."""
    late_us: list[float] = field(default_factory=list)
    """What still ran on the device, on any stream, when the entry point's own stream was done."""
    bare: list[Call] = field(default_factory=list)
    """Calls on a GPU without flush and sleep: the program's clock covers all of the wall clock but the messages."""

    def drift(self) -> float:
        """How far the baseline is from its stored latency, relative."""
        assert self.best is not None
        return drift(self.best.baseline_us, self.stored_us)

    def note(self, call: Call, baseline_us: float, reply_us: float | None) -> None:
        """One round is in the statistics. On a CPU a reply costs `reply_us`; on a GPU bare calls test the clock."""
        own = call.own_us + call.late_us if reply_us is None else believed(call.own_us, call.wall_us, reply_us)
        self.pairs.append(Pair(own, baseline_us))
        self.late_us.append(call.late_us)
        self.rounds += 1

    def sure(self, target: float) -> bool:
        """Whether the ratio's standard error is below the target."""
        return len(self.pairs) > 1 and estimate(self.pairs).noise <= target

    def keep_steadier(self) -> None:
        """`best` is this attempt's estimate or the earlier one, whichever baseline is nearer to the stored latency."""
        earlier, fresh = self.best, estimate(self.pairs)
        self.best = fresh
        if earlier is not None and drift(earlier.baseline_us, self.stored_us) < self.drift():
            self.best = earlier

    def examine(self, device: Device, reply_us: float, vary_us: float, crowded: bool) -> None:
        """The reported times can be true. Raises Fault (rejected) with what contradicts them.

        A reply costs `reply_us` on the wall clock beyond an honest program's own time, and at most `vary_us` more;
        on a crowded machine it costs anything, and a false clock gains nothing but is not called false.
        """
        name = self.load.name
        if device.kind == "cpu" and not crowded:
            self._examine_clock(reply_us)
        launching_us = median(fresh.host_us for _, fresh in self.calls)
        if remembered([(old.own_us, fresh.own_us) for old, fresh in self.calls], _UNHIDDEN * launching_us):
            raise rejected(
                "reused_results",
                f"on workload {name!r} inputs that were seen before took less than half of the time of fresh ones: "
                "nothing that was computed from the contents of earlier inputs may be reused",
            )
        assert self.best is not None
        latency = self.best.latency_us
        late = median(self.late_us)
        if late > max(_LATE_US, _LATE * latency):
            raise rejected(
                "unfinished_work",
                f"on workload {name!r} work was still running on the device {late:.0f} us after the entry point's own "
                "stream was done: side streams must be joined to the current stream before the call returns",
            )
        self._examine_bare(reply_us, vary_us)
        floor = device.floor_us(self.load.least_read, self.load.written, self.load.operations)
        if latency < _FLOOR * floor:
            raise rejected(
                "impossible_time",
                f"{latency:.1f} us on workload {name!r} is below the roofline floor of {floor:.1f} us: the device "
                "cannot read the inputs and do the arithmetic in that time, so the timed call did not do the work",
            )

    def _examine_clock(self, reply_us: float) -> None:
        clocks = [(call.own_us, call.wall_us) for pair in self.calls for call in pair]
        if contradicted(clocks, reply_us):
            raise rejected(
                "clock_mismatch",
                f"the time that the program's process reported on workload {self.load.name!r} is less than half of "
                "the wall-clock time in nearly every round",
            )

    def hidden_us(self, reply_us: float, vary_us: float) -> float:
        """What even the best bare call took beyond its own time and a reply; 0 where that can be chance."""
        if not self.bare or self.best is None:
            return 0.0
        hidden = min(call.wall_us - call.own_us - call.late_us for call in self.bare) - reply_us
        return hidden if hidden > max(_HIDDEN * self.best.latency_us, vary_us + _SLACK_US) else 0.0

    def _examine_bare(self, reply_us: float, vary_us: float) -> None:
        hidden = self.hidden_us(reply_us, vary_us)
        if hidden:
            own = min(call.own_us for call in self.bare)
            raise rejected(
                "clock_mismatch",
                f"on workload {self.load.name!r} the program's process reports {own:.0f} us for calls that took "
                f"{own + hidden:.0f} us or more by the wall clock (a reply costs {reply_us:.0f} us)",
            )
