"""The trusted process: makes inputs, runs reference and baseline, checks outputs, keeps the wall clock.

Started as `python -m tasks.worker READ_FD WRITE_FD`; answers one JSON request at a time until the other side
closes its end or dies. Standard library and torch only, so that it starts on any machine with a checkout.
"""

from __future__ import annotations

import os
import platform
import select
import sys
import threading
from typing import Any

import torch

from tasks.channel import Channel, ChannelClosed, Message
from tasks.isolation import adopt_orphans, hide_memory, kill_descendants
from tasks.measure import measure
from tasks.problem import Problem, ProblemError
from tasks.race import race

_TIMING_VARIABLES = ("OMP_", "GOMP_", "KMP_", "GLIBC_TUNABLES", "ONEDNN_", "DNNL_", "ATEN_", "MKL_", "TORCHINDUCTOR_")
_POLL_MS = 1000


def main() -> None:
    """Serves requests; ends with every descendant when the main process does."""
    channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
    adopt_orphans()
    hide_memory()
    threading.Thread(target=_watch, args=(channel.read_fd, os.getppid()), daemon=True).start()
    torch.manual_seed(int.from_bytes(os.urandom(6), "little"))
    service = Service()
    try:
        while True:
            channel.send(service.answer(channel.receive()))
    except ChannelClosed:
        _end()


def _watch(request_fd: int, parent: int) -> None:
    """Ends this process as soon as nobody holds the other end of the request pipe."""
    poll = select.poll()
    poll.register(request_fd, 0)
    while not poll.poll(_POLL_MS) and os.getppid() == parent:
        pass
    _end()


def _end() -> None:
    kill_descendants(os.getpid())
    os._exit(0)


class Service:
    """The requests: load a task, race its baselines, evaluate a shared object."""

    def __init__(self) -> None:
        self._problem: Problem | None = None
        self._warmed: set[tuple[str, str]] = set()

    def answer(self, request: Message) -> Message:
        """The reply; a fault of the task's own files comes back as task_error."""
        actions = {"load": self._load, "race": self._race, "evaluate": self._evaluate}
        try:
            return actions[request.pop("do")](request)
        except ProblemError as error:
            return {"task_error": str(error)}

    def _load(self, request: Message) -> Message:
        self._problem = Problem(request["task"])
        return {
            "versions": {"torch": torch.__version__, "python": platform.python_version()},
            "environment": {key: value for key, value in os.environ.items() if key.startswith(_TIMING_VARIABLES)},
        }

    def _race(self, request: Message) -> Message:
        problem = self._loaded()
        with torch.inference_mode():
            timings = [race(problem, problem.loads[name]) for name in request["workloads"]]
        self._warmed |= {(timing["workload"], timing["strongest"]) for timing in timings}
        return {"timings": timings}

    def _evaluate(self, request: Message) -> dict[str, Any]:
        return measure(self._loaded(), request, self._warmed)

    def _loaded(self) -> Problem:
        if self._problem is None:
            raise RuntimeError("no task was loaded")
        return self._problem


if __name__ == "__main__":
    main()
