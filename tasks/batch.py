"""The worker that serves a spool: every pending request is evaluated, one after the other, and answered at once.

Standard library only; the trusted process, which needs torch, is a child: when it crashes the batch goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import geometric_mean

from tasks import envelope
from tasks.bench import Bench, Pending
from tasks.envelope import BadFile, Fields
from tasks.errors import EvaluatorUnavailable, TaskError
from tasks.tool import ToolMissing

DONE, LEFT = 0, 75
"""Exit codes: nothing is pending; something is (the system's EX_TEMPFAIL: try again later)."""


@dataclass
class Batch:
    """One run of the worker over a spool."""

    spool: Path
    out: Path
    device: str | None = None
    """The only device whose requests are served; None: any."""
    minutes: float | None = None
    """No evaluation begins after so many of them."""
    done: int = 0
    _stopping: bool = False
    _began: float = field(default_factory=time.monotonic)

    def run(self) -> int:
        """Answers are there for all that could be served; returns the exit code."""
        pending = self._pending()
        total = len(pending)
        say(f"{total} pending in {self.spool / envelope.REQUESTS}, answers go to {self.out / envelope.ANSWERS}")
        try:
            with _alone(self.out), self._signals(), tempfile.TemporaryDirectory(prefix="ksearch-") as folder:
                bench = Bench(Path(folder), say)
                try:
                    self._serve_all(pending, bench)
                finally:
                    bench.end()
        except EvaluatorUnavailable as reason:
            say(f"nothing can be done: {reason}")
        say(f"{self.done} done, {total - self.done} left")
        return DONE if self.done == total else LEFT

    def _pending(self) -> list[Pending]:
        """What is to be done: baselines first, then what can share a process, the oldest first."""
        found = []
        for path in envelope.listed(self.spool / envelope.REQUESTS):
            try:
                request = envelope.read_request(path)
            except BadFile as error:
                say(f"skipped {path.name}: {error}")
                continue
            results = self._earlier(path.name)
            if envelope.wanted(request, results) and self.device in (None, request["device"]):
                found.append(Pending(path.stem, request, results))
        settings = list(dict.fromkeys(pending.setting for pending in found))
        return sorted(found, key=lambda item: (item.request["program"] is not None, settings.index(item.setting)))

    def _earlier(self, name: str) -> Fields:
        """The results that are in the answer already; none when it is damaged, and will be written anew."""
        path = self.out / envelope.ANSWERS / name
        if not path.exists():
            return {}
        try:
            return envelope.read_answer(path)
        except BadFile as error:
            say(f"the answer {name} counts for nothing: {error}")
            return {}

    def _serve_all(self, pending: list[Pending], bench: Bench) -> None:
        unfit: set[str] = set()
        built: set[str] = set()
        for index, item in enumerate(pending):
            if self._over():
                return
            if item.setting in unfit:
                continue
            try:
                bench.loaded(item)
                if item.request["program"] is not None and item.setting not in built:
                    built.add(item.setting)
                    bench.build([other for other in pending[index:] if other.setting == item.setting])
                self._serve(item, bench)
            except (ToolMissing, EvaluatorUnavailable) as error:
                unfit.add(item.setting)
                say(f"{item.title} is left, with all that need the same: {error}")
            except TaskError as error:
                purpose = envelope.wanted(item.request, item.results)[0]["purpose"]
                self._keep(item, purpose, {"reply": {"task_error": str(error)}, "machine": bench.machine(item)})
                say(f"{self.done}/{len(pending)} {item.title}: the task is at fault: {error}")
            else:
                say(f"{self.done}/{len(pending)} {item.title}: {summed(item.results)}")

    def _serve(self, item: Pending, bench: Bench) -> None:
        """Every step that is wanted has its result, each on the disk before the next begins."""
        while not self._stopping and (steps := envelope.wanted(item.request, item.results)):
            reply = bench.reply(item, steps[0])
            self._keep(item, steps[0]["purpose"], {"reply": reply, "machine": bench.machine(item)})

    def _keep(self, item: Pending, purpose: str, result: Fields) -> None:
        """The step's result is on the disk."""
        item.results[purpose] = result
        envelope.write_answer(self.out, item.id, item.results)
        self.done += not envelope.wanted(item.request, item.results)

    def _over(self) -> bool:
        late = self.minutes is not None and time.monotonic() - self._began > 60 * self.minutes
        return late or self._stopping

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the batch after the evaluation in flight."""

        def stop(number: int, frame: object) -> None:
            self._stopping = True
            os.write(1, b"stopping after the evaluation in flight\n")

        before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Inside, no other worker writes answers here. Raises EvaluatorUnavailable when one does, or nobody can."""
    path = out / "worker.lock"
    try:
        out.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise EvaluatorUnavailable(f"{out}: answers cannot be written there ({error.strerror})") from None
    try:
        if _held_elsewhere(descriptor):
            raise EvaluatorUnavailable(f"another worker writes its answers to {out}")
        yield
    finally:
        os.close(descriptor)


def _held_elsewhere(descriptor: int) -> bool:
    """Whether another process has the lock; on a file system without locks nobody does."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def summed(results: Fields) -> str:
    """What the steps of a request came to, in one line."""
    parts = []
    for purpose, result in results.items():
        reply = result["reply"]
        verdict = reply.get("verdict")
        if verdict is None:
            parts.append("task at fault" if "task_error" in reply else "measured")
        elif verdict["kind"] == "passed":
            ratios = [timing["baseline_us"] / timing["latency_us"] for timing in verdict["timings"]]
            parts.append(f"{purpose} passed, J {100 * geometric_mean(ratios):.1f}")
        else:
            parts.append(f"{purpose} {verdict['kind'].replace('_', ' ')}")
    return "; ".join(parts)


def say(text: str) -> None:
    """A line on standard output, at once."""
    print(text, flush=True)
