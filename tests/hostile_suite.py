"""Programs that try to cheat or to do harm, what each must lead to, and honest ones that must pass.

A hostile program begins with three comment lines: `expect: <kind>[:<reason>]` (alternatives with `|`), what it
does, and which harness it fools. `passed:no_gain` stands for a cheat that has no hold: it is measured like any
other program and gains nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from state.verdict import CompileError, Crashed, Passed, Rejected, TimedOut, Verdict, WrongResult

PROGRAMS = Path(__file__).parent / "programs"
SUFFIXES = {"cpp": ".cpp", "python": ".py", "triton": ".py", "cuda": ".cu"}
KINDS = ("passed", "compile_error", "crashed", "wrong_result", "timed_out", "rejected")
NO_GAIN = "no_gain"
_GAIN_FROM = 130.0
"""J, less twice its noise, from which on a program counts as having gained over the baseline."""


@dataclass(frozen=True)
class Expectation:
    """One acceptable verdict."""

    kind: str
    reason: str | None = None
    """None accepts any reason."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.reason}" if self.reason else self.kind

    def met_by(self, verdict: Verdict) -> bool:
        """Whether the verdict is of this kind, for this reason."""
        if isinstance(verdict, Passed):
            sure = max(0.1, 1 - 2 * verdict.noise)
            return self.kind == "passed" and verdict.score * sure < _GAIN_FROM
        return self.kind == verdict.kind and self.reason in (None, reason_of(verdict))


@dataclass(frozen=True)
class Hostile:
    """One program of the suite."""

    family: str
    language: str
    source: str
    expected: tuple[Expectation, ...]
    does: str
    """One sentence."""
    fools: str
    """The harness on which it would have worked; empty for a program that only does harm."""

    def answered_by(self, verdict: Verdict) -> bool:
        """Whether the verdict is one of the expected."""
        return any(expectation.met_by(verdict) for expectation in self.expected)


@dataclass(frozen=True)
class Outcome:
    """What an evaluator made of a program."""

    program: Hostile
    verdict: Verdict
    seconds: float


def families(language: str) -> tuple[Hostile, ...]:
    """The hostile programs of a language by name; ValueError for a file without a proper head."""
    folder = PROGRAMS / "hostile" / language
    return tuple(parsed(path, language) for path in sorted(folder.glob(f"*{SUFFIXES[language]}")))


def good(language: str) -> dict[str, str]:
    """Sources of the honest programs of a language, by name."""
    paths = sorted((PROGRAMS / "good" / language).glob(f"*{SUFFIXES[language]}"))
    return {path.stem: path.read_text() for path in paths}


def parsed(path: Path, language: str) -> Hostile:
    """The program of a file; ValueError when its head does not say what is expected."""
    source = path.read_text()
    head = [line.removeprefix("//").removeprefix("#").strip() for line in source.splitlines()[:3]]
    if len(head) < 3 or not head[0].startswith("expect:") or not head[1]:
        raise ValueError(f"{path}: the first lines are '<comment> expect: <kind>[:<reason>]' and what it does")
    expected = tuple(_expectation(text.strip(), path) for text in head[0].removeprefix("expect:").split("|"))
    fools = head[2].removeprefix("Fools ") if head[2].startswith("Fools ") else ""
    return Hostile(path.stem, language, source, expected, head[1], fools)


def reason_of(verdict: Verdict) -> str:
    """The verdict's own reason: of a crash its signal, of a time limit its stage, of a pass nothing."""
    match verdict:
        case Rejected(reason=reason) | WrongResult(reason=reason):
            return reason
        case Crashed(signal=signal):
            return signal
        case TimedOut(stage=stage):
            return stage
        case CompileError():
            return "compiler"
    return ""


def table(outcomes: Iterable[Outcome]) -> str:
    """Markdown: family, verdict, reason, seconds; what was not expected says so."""
    lines = ["| family | verdict | reason | seconds |", "|---|---|---|---|"]
    for outcome in outcomes:
        program, verdict = outcome.program, outcome.verdict
        reason = f"J {verdict.score:.0f}" if isinstance(verdict, Passed) else reason_of(verdict)
        if not program.answered_by(verdict):
            reason += f" (NOT EXPECTED: {' or '.join(map(str, program.expected))})"
        lines.append(f"| {program.family} | {verdict.kind} | {reason} | {outcome.seconds:.1f} |")
    return "\n".join(lines) + "\n"


def _expectation(text: str, path: Path) -> Expectation:
    kind, _, reason = text.partition(":")
    if kind not in KINDS or (kind == "passed" and reason != NO_GAIN):
        raise ValueError(f"{path}: {text!r} is not an expected verdict")
    return Expectation(kind, reason or None)
