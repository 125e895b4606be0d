"""The archive: every program, verdict, model call and event of every run, in one SQLite file.

Paid effects go through `Archive.verdict` and `Archive.reply`: what is stored is returned, what is not is
made, committed, and then returned. So a process killed at any moment repeats at most the effect in flight.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from state.calls import Calls, Clock
from state.database import packed, unpacked
from state.edits import EVENT, Event
from state.effects import Purpose, VerdictKey
from state.program import Program
from state.verdict import UNVERIFIED, VERDICT, Passed, Verdict, voucher

_REMEMBERED = 16
"""Programs, and verdicts, kept in memory: an intent shows its coder the same few again and again."""


class Archive(Calls):
    """Get-or-make access to what was paid for. Safe to share between threads."""

    def __init__(self, path: Path, clock: Clock = time.perf_counter) -> None:
        """Opens or creates the file. Raises ArchiveError when it cannot be used."""
        super().__init__(path, clock)
        self._programs: dict[str, Program] = {}
        self._passed: dict[tuple[str, ...], Passed] = {}
        self._shared = False
        """LangGraph's checkpoints are in this file."""

    def verdict(self, key: VerdictKey, make: Callable[[], Verdict]) -> tuple[Verdict, float, bool]:
        """The verdict, the seconds it took, and whether it was there already.

        What `make` raises (EvaluatorUnavailable) passes through and nothing is stored.
        """
        where = list(key.model_dump().values())
        row = self._one(
            "SELECT verdict, seconds FROM verdicts WHERE program = ? AND task_hash = ? AND evaluator = ? "
            "AND hardware = ? AND purpose = ?", where,
        )  # fmt: skip
        if row is not None:
            return VERDICT.validate_json(row[0]), row[1], True
        begun = self._clock()
        verdict = make()
        seconds = self._clock() - begun
        self.keep_verdict(key, verdict, seconds)
        return verdict, seconds, False

    def keep_verdict(self, key: VerdictKey, verdict: Verdict, seconds: float) -> None:
        """A verdict is under the key: this one, which took so many seconds, unless there was one already."""
        self._passed.pop(key.judged, None)
        self._execute(
            "INSERT OR IGNORE INTO verdicts (program, task_hash, evaluator, hardware, purpose, kind, score, "
            "verdict, seconds, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, datetime('now'))",
            [*key.model_dump().values(), verdict.kind, getattr(verdict, "score", None), verdict.model_dump_json(),
             seconds], cost_s=seconds,
        )  # fmt: skip

    def has_verdict(self, key: VerdictKey) -> bool:
        """Whether a verdict is under the key."""
        where = list(key.model_dump().values())
        return self._one(
            "SELECT 1 FROM verdicts WHERE program = ? AND task_hash = ? AND evaluator = ? AND hardware = ? "
            "AND purpose = ?", where,
        ) is not None  # fmt: skip

    def latest_passed(self, key: VerdictKey) -> Passed | None:
        """The newest verdict under which the program passed here, apart from held-out ones: no model sees those."""
        judged = key.judged
        if judged not in self._passed:
            row = self._one(
                "SELECT verdict FROM verdicts WHERE program = ? AND task_hash = ? AND evaluator = ? AND hardware = ? "
                "AND kind = 'passed' AND purpose <> 'held_out' ORDER BY rowid DESC LIMIT 1", list(judged),
            )  # fmt: skip
            if row is None:
                return None
            self._passed[judged] = Passed.model_validate_json(row[0])
            _limit(self._passed)
        return self._passed[judged]

    def verdicts_of(self, program: str, task_hash: str | None = None) -> list[tuple[Purpose, Verdict]]:
        """Every verdict on a program, oldest first."""
        rows = self._all(
            "SELECT purpose, verdict FROM verdicts WHERE program = ? AND (? IS NULL OR task_hash = ?) "
            "ORDER BY rowid", [program, task_hash, task_hash],
        )  # fmt: skip
        return [(row[0], VERDICT.validate_json(row[1])) for row in rows]

    def measured(self, program: str) -> str:
        """When the latest verdict before the held-out one was reached: ISO date and time in UTC; empty without one."""
        row = self._one(
            "SELECT replace(created, ' ', 'T') || '+00:00' FROM verdicts WHERE program = ? AND purpose <> 'held_out' "
            "ORDER BY rowid DESC LIMIT 1", [program],
        )  # fmt: skip
        return "" if row is None else str(row[0])

    def voucher(self, program: str) -> str:
        """The id of the receipt behind a program's score, its latest verdict before the held-out one, or "unverified".

        "unverified" also when there is no verdict.
        """
        row = self._one(
            "SELECT verdict FROM verdicts WHERE program = ? AND purpose <> 'held_out' ORDER BY rowid DESC LIMIT 1",
            [program],
        )
        return UNVERIFIED if row is None else voucher(VERDICT.validate_json(row[0]))

    def baseline(self, run: str, make: Callable[[], str]) -> str:
        """The run's baseline timings as JSON text, measured once per run."""
        row = self._one("SELECT timings FROM baselines WHERE run = ?", [run])
        if row is not None:
            return str(row[0])
        timings = make()
        self._execute(
            "INSERT OR IGNORE INTO baselines (run, timings, created) VALUES (?, ?, datetime('now'))",
            [run, timings],
        )
        return timings

    def keep(self, program: Program) -> str:
        """The program is in the archive; returns its id."""
        self._execute(
            "INSERT OR IGNORE INTO programs (id, language, source, created) VALUES (?, ?, ?, datetime('now'))",
            [program.id, program.language, packed(program.source)],
        )
        return self._remember(program).id

    def program(self, program_id: str) -> Program:
        """The program of this id; KeyError when there is none."""
        found = self._programs.get(program_id)
        if found is None:
            row = self._one("SELECT language, source FROM programs WHERE id = ?", [program_id])
            if row is None:
                raise KeyError(program_id)
            found = self._remember(Program(language=row[0], source=unpacked(row[1])))
        return found

    def _remember(self, program: Program) -> Program:
        self._programs[program.id] = program
        _limit(self._programs)
        return program

    def record(
        self, run: str, branch: str, start: int, events: list[dict[str, Any]], known: int | None = None
    ) -> None:  # fmt: skip
        """These events are in the log from position `start` on; recording them again changes nothing.

        `known` of them are there already, if the caller has looked.
        """
        if known is None:
            known = max(0, self.event_count(run, branch) - start)
        if known >= len(events):
            return
        rows = [
            (run, branch, start + offset, event["round"], event["kind"], event["author"],
             EVENT.dump_json(EVENT.validate_python(event)).decode())
            for offset, event in enumerate(events[known:], known)
        ]  # fmt: skip
        with self.transaction():
            self._db.conn.executemany(
                "INSERT OR IGNORE INTO events (run, branch, seq, round, kind, author, event) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)", rows,
            )  # fmt: skip

    def event_count(self, run: str, branch: str) -> int:
        """Length of a branch's log, its parents' part included."""
        row = self._one("SELECT max(seq) + 1 FROM events WHERE run = ? AND branch = ?", [run, branch])
        if row is not None and row[0] is not None:
            return int(row[0])
        parent = self._parent(run, branch)
        return 0 if parent is None else parent[1]

    def fork(self, run: str, parent: str, at: int) -> str:
        """A branch that shares the parent's log up to position `at` and has no events yet; returns its name."""
        unused = self._one(
            "SELECT branch FROM branches AS b WHERE run = ? AND parent = ? AND at = ? AND NOT EXISTS "
            "(SELECT 1 FROM events AS e WHERE e.run = b.run AND e.branch = b.branch AND e.seq >= b.at)",
            [run, parent, at],
        )
        if unused is not None:
            return str(unused[0])
        row = self._one("SELECT count(*) FROM branches WHERE run = ?", [run])
        name = f"fork{(row or [0])[0] + 1}"
        self._execute("INSERT INTO branches (run, branch, parent, at) VALUES (?, ?, ?, ?)", [run, name, parent, at])
        return name

    def events(self, run: str, branch: str, end: int | None = None) -> list[Event]:
        """A branch's log in order, with what it shares with its parents, up to position `end`."""
        return [EVENT.validate_python(event) for event in self.plain_events(run, branch, 0, end)]

    def plain_events(self, run: str, branch: str, start: int, end: int | None = None) -> list[dict[str, Any]]:
        """As `events`, from position `start`, in the form in which a state's log holds them."""
        parent = self._parent(run, branch)
        own = 0 if parent is None else parent[1]
        shared: list[dict[str, Any]] = []
        if parent is not None and start < own:
            shared = self.plain_events(run, parent[0], start, own if end is None else min(own, end))
        rows = self._all(
            "SELECT event FROM events WHERE run = ? AND branch = ? AND seq >= ? AND (? IS NULL OR seq < ?) "
            "ORDER BY seq", [run, branch, max(own, start), end, end],
        )  # fmt: skip
        return shared + [json.loads(row[0]) for row in rows]

    def tried(self, run: str, branch: str, program: str) -> bool:
        """Whether the program was an attempt of this branch or of what it shares with its parents."""
        end: int | None = None
        while True:
            row = self._one(
                "SELECT 1 FROM events WHERE run = ? AND branch = ? AND kind = 'attempt' "
                "AND program = ? AND (? IS NULL OR seq < ?)", [run, branch, program, end, end],
            )  # fmt: skip
            if row is not None:
                return True
            parent = self._parent(run, branch)
            if parent is None:
                return False
            branch, at = parent
            end = at if end is None else min(at, end)

    def save_run(self, run: str, summary: dict[str, Any]) -> None:
        """The run's line in the list of runs; keys are columns of the table `runs`."""
        columns = ", ".join(["run", *summary])
        marks = ", ".join("?" for _ in range(len(summary) + 1))
        changes = ", ".join(f"{key} = excluded.{key}" for key in summary)
        self._execute(
            f"INSERT INTO runs ({columns}, created, updated) VALUES ({marks}, datetime('now'), "
            f"strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT (run) DO UPDATE SET {changes}, "
            "updated = excluded.updated",
            [run, *summary.values()],
        )

    def runs(self) -> list[dict[str, Any]]:
        """Every run, the newest first, with the number of its model calls."""
        with self._lock:
            return list(
                self._db.query(
                    "SELECT runs.*, (SELECT count(*) FROM model_calls WHERE model_calls.run = runs.run) "
                    "AS model_calls FROM runs ORDER BY rowid DESC"
                )
            )

    def await_checkpoint(self, run: str, checkpoint: str, limit_s: float = 10.0) -> None:
        """Returns when LangGraph's checkpoint is in this file, or when this file does not hold the run's.

        LangGraph may write behind; a log that ran ahead of its checkpoints would look like a step back in time.
        """
        deadline = time.monotonic() + limit_s
        self._shared = self._shared or bool(self._all("SELECT 1 FROM sqlite_master WHERE name = 'checkpoints'", []))
        if not self._shared:
            return
        mine = "SELECT 1 FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = ''"
        while self._one(f"{mine} AND checkpoint_id = ?", [run, checkpoint]) is None:
            if self._one(f"{mine} LIMIT 1", [run]) is None or time.monotonic() > deadline:
                return
            time.sleep(0.002)

    def _parent(self, run: str, branch: str) -> tuple[str, int] | None:
        if branch == "main":
            return None
        row = self._one("SELECT parent, at FROM branches WHERE run = ? AND branch = ?", [run, branch])
        return None if row is None else (row[0], row[1])


def _limit(kept: dict[Any, Any]) -> None:
    """The oldest goes when there are too many."""
    if len(kept) > _REMEMBERED:
        kept.pop(next(iter(kept)), None)
