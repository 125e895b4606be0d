"""Grades a submission as GPU Mode does: upstream's own harness, in an enclosure. Standard library only.

The harness times the submission inside the submission's own process, so a grade can be faked: it is no verdict.
`python -m tasks.upstream REQUEST.json` grades on a machine that has this checkout and what the problem needs.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from tasks import lock
from tasks.confined import Confined
from tasks.driver import DeviceSick
from tasks.errors import EvaluatorUnavailable
from tasks.grades import Grade, Lines, Mode, Phase, benchmarks_of, lines_of, outcome_of, score_of, tests_of
from tasks.isolation import adopting_orphans
from tasks.launcher import Launcher, Room

_SCRIPT = Path(__file__).with_name("harness.py")
_ROOM = Room(scratch_mib=4096, shared_mib=1024)
_FILE_BYTES = 2 << 30
_PREPARE_S = 120.0
"""Upstream's limit for running the submission by itself, which fills compilers' caches."""
_START_S = 30.0
_GRACE_S = 10.0
"""What the harness's process may take beyond a command's limit before all of it is killed."""
_LOOK_S = 0.5
"""How often memory is looked at."""
_KILLED = -9
_READ = 4 << 20
"""Bytes of results that are kept."""
_KEPT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CC", "CXX")
_KEPT_PREFIXES = ("CUDA_", "NVIDIA_", "TRITON_", "TORCH_CUDA_", "OMP_", "MKL_")


@dataclass(frozen=True)
class Request:
    """A problem with a submission: plain data, so that it may travel as a file."""

    problem: str
    files: dict[str, str]
    """Everything that lies beside the harness, the submission included: name to text."""
    main: str
    """The harness."""
    submission: str
    """Name of the submission's file."""
    tests: str
    """Case file: a case a line, "name: value; name: value"."""
    benchmarks: str
    test_timeout: float
    benchmark_timeout: float
    ranked_timeout: float
    """Limits in seconds, for each of the three kinds of run."""
    ranking_by: str
    """geom, mean or last: then only the last benchmark is run."""

    def cases(self, mode: Mode) -> list[str]:
        """The lines of the case file that a run of this kind is given."""
        if mode == "test":
            return self.tests.splitlines()
        return self.benchmarks.splitlines()[-1:] if self.ranking_by == "last" else self.benchmarks.splitlines()

    def limit_s(self, mode: Mode) -> float:
        """Seconds that a run of this kind may take."""
        return {"test": self.test_timeout, "benchmark": self.benchmark_timeout, "leaderboard": self.ranked_timeout}[
            mode
        ]


def grade(request: Request, mode: Mode, seed: int | None = None) -> Grade:
    """The grade; everything that the submission started is dead. Meanwhile this process is a child subreaper.

    leaderboard runs tests, benchmarks and ranked benchmarks one after the other, while they pass. Raises
    EvaluatorUnavailable.
    """
    modes: tuple[Mode, ...] = ("test", "benchmark", "leaderboard") if mode == "leaderboard" else (mode,)
    phases: list[Phase] = []
    with adopting_orphans(), tempfile.TemporaryDirectory(prefix="ksearch-grade-") as folder:
        try:
            harness = _Harness(request, Path(folder))
            try:
                harness.run([request.submission], _PREPARE_S, 1)
                for each in modes:
                    phases.append(_phase(harness, request, each, seed))
                    if phases[-1].outcome != "passed":
                        break
            finally:
                harness.end()
        except (DeviceSick, lock.LockTimeout) as error:
            raise EvaluatorUnavailable(str(error)) from None
    passed = all(phase.outcome == "passed" for phase in phases)
    score = score_of(phases[-1].cases, request.ranking_by) if passed and mode != "test" else None
    return Grade(request.problem, mode, passed, tuple(phases), request.ranking_by, score, seed, harness.enclosure)


def _phase(harness: _Harness, request: Request, mode: Mode, seed: int | None) -> Phase:
    specs = request.cases(mode)
    arguments = [request.main, mode, f"{mode}.cases"]
    with nullcontext() if mode == "test" else lock.timing():
        began = time.monotonic()
        status, lines = harness.run(arguments, request.limit_s(mode), seed)
        seconds = time.monotonic() - began
    outcome = outcome_of(lines, status)
    cases = tests_of(lines, specs) if mode == "test" else benchmarks_of(lines, specs)
    message = lines.get("error", "") if outcome in ("passed", "failed") else harness.last_words()
    return Phase(mode, outcome, cases, status, seconds, message)


class _Harness:
    """The process in the enclosure that runs upstream's scripts in a folder with the request's files."""

    def __init__(self, request: Request, folder: Path) -> None:
        """Raises DeviceSick."""
        cases = {f"{mode}.cases": "".join(f"{line}\n" for line in request.cases(mode)) for mode in get_args(Mode)}
        files = folder / "files.json"
        files.write_text(json.dumps({**request.files, **cases}), encoding="utf-8")
        self._words = ""
        self._over = False
        self._environment = _environment()
        self._memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        self._confined = Confined(Launcher(False, folder, _SCRIPT, _ROOM), ())
        self.enclosure = self._confined.enclosure
        try:
            self._send({"files": str(files), "file_size": _FILE_BYTES}, ())
            ready = self._confined.receive(_START_S) == b"{}"
        except (TimeoutError, OSError):
            ready = False
        if not ready:
            self.end()
            raise DeviceSick(f"the process for upstream's harness could not be prepared: {self._words}")

    def run(self, arguments: list[str], limit_s: float, seed: int | None) -> tuple[int | None, Lines]:
        """Exit status of a Python script, None when it was killed at its limit, and what it wrote into its pipe."""
        environment = self._environment | ({} if seed is None else {"POPCORN_SEED": str(seed)})
        request = {"command": [sys.executable, *arguments], "environment": environment, "limit_s": limit_s}
        ours, theirs = os.pipe()
        os.set_blocking(ours, False)
        written = bytearray()
        try:
            try:
                self._send(request, (theirs,))
            finally:
                os.close(theirs)
            status = self._listen(ours, written, time.monotonic() + limit_s + _GRACE_S)
        except OSError:  # the process is gone
            status = _KILLED
        finally:
            os.close(ours)
        return status, lines_of(written.decode(errors="replace"))

    def _listen(self, pipe: int, written: bytearray, deadline: float) -> int | None:
        """The status that is replied, with the pipe emptied all the while."""
        control = self._confined.control
        waited: list[Any] = [control, pipe]
        while True:
            ready = select.select(waited, [], [], _LOOK_S)[0]
            if pipe in ready and not _drain(pipe, written):
                waited.remove(pipe)
            if control in ready:
                status = _status(self._confined.receive(0))
                _drain(pipe, written)
                return status
            if time.monotonic() > deadline:
                self.end()
                return None
            if self._confined.resident_peak() > self._memory:
                self.end()
                self._words = f"killed: it used more than {self._memory >> 20} MiB of memory\n{self._words}"
                return _KILLED

    def last_words(self) -> str:
        """The end of what scripts printed."""
        return self._words or self._confined.last_words()

    def end(self) -> None:
        """Everything in the enclosure is dead. Ending it twice is once."""
        if not self._over:
            self._over = True
            self._words = self._confined.last_words() or "(nothing was printed)"
            self._confined.end()

    def _send(self, message: dict[str, Any], descriptors: tuple[int, ...]) -> None:
        socket.send_fds(self._confined.control, [json.dumps(message).encode()], list(descriptors))


def _environment() -> dict[str, str]:
    """What upstream's scripts are told of this machine: no secrets."""
    kept = {key: value for key, value in os.environ.items() if key in _KEPT or key.startswith(_KEPT_PREFIXES)}
    tools = [str(Path(sys.executable).parent), *filter(None, [kept.get("PATH")])]
    return {**kept, "PATH": os.pathsep.join(tools)}


def _status(reply: bytes) -> int | None:
    """The exit status in a reply of the harness's process, which the submission may have ended or taken over."""
    try:
        status = json.loads(reply)["status"]
    except (ValueError, KeyError, TypeError):
        return _KILLED
    return status if status is None or isinstance(status, int) else _KILLED


def _drain(pipe: int, written: bytearray) -> bool:
    """What is in the pipe is added as long as it is little enough to keep; False at the end of the stream."""
    while True:
        try:
            read = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return True
        if not read:
            return False
        written += read[: max(0, _READ - len(written))]


def main() -> None:
    """Prints the grade as JSON; exit status 0 when the submission passed, otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m tasks.upstream", description=grade.__doc__)
    parser.add_argument("request", type=Path, help="written by ksearch grade --request")
    parser.add_argument("--mode", choices=get_args(Mode), default="test")
    parser.add_argument("--seed", type=int, help="POPCORN_SEED")
    given = parser.parse_args()
    request = Request(**json.loads(given.request.read_text(encoding="utf-8")))
    found = grade(request, given.mode, given.seed)
    print(json.dumps(asdict(found), indent=1))
    sys.exit(0 if found.passed else 1)


if __name__ == "__main__":
    main()
