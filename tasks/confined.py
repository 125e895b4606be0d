"""A script's process in an enclosure, as its parent holds it: stopped, resumed, ended. Standard library only."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks.isolation import alive, descendants, kill, kill_descendants, resident_peak, wait_until_quiet

BARE = (sys.executable, "-I", "-S")
"""An interpreter without site packages: starts within milliseconds."""
_START_S = 20.0
_STOP_S = 1.0
_END_S = 2.0
_QUIET_S = 0.02
_TAIL = 1500
_PAUSE_S = 0.0001
_SCRIPT = Path(__file__).with_name("enclosure.py")
_SCRATCH = "scratch"


@dataclass(frozen=True)
class Launch:
    """What is to run, and what it is given."""

    script: Path
    arguments: tuple[str, ...]
    """Each {control} in them becomes the descriptor of the script's end of the control socket."""
    folder: Path
    """Its scratch folder, the working folder, is made in here."""
    environment: dict[str, str]
    descriptors: tuple[int, ...] = ()
    interpreter: tuple[str, ...] = BARE


class Confined:
    """A running script; `enclosure` says in words what is in force. The caller is a child subreaper."""

    def __init__(self, launch: Launch) -> None:
        self._spare = frozenset(descendants(os.getpid()))
        self.status: int | None = None
        """Wait status, once the process is known to have ended."""
        self._log = os.memfd_create("ksearch-log", os.MFD_CLOEXEC)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._launcher = _start(launch, theirs.fileno(), self._log)
        try:
            placed = json.loads(self._first_words())
            self.pid: int = placed["process"]
            self._first: int = placed["first"]
            self._launcher.wait(_START_S)
            self.control.send(b"go")
            self.enclosure: tuple[str, ...] = tuple(json.loads(self._first_words()))
        except BaseException:
            kill_descendants(os.getpid(), self._spare)
            self._close()
            raise

    def _first_words(self) -> bytes:
        """A message of the launcher, from before any of the script's own code runs."""
        message = self.receive(_START_S)
        if not message:
            raise RuntimeError(f"{_SCRIPT.name} ended early: {self.last_words()}")
        return message

    def last_words(self) -> str:
        """The end of what the script printed."""
        size = os.lseek(self._log, 0, os.SEEK_END)
        return os.pread(self._log, _TAIL, max(0, size - _TAIL)).decode(errors="replace").strip()

    def receive(self, limit_s: float) -> bytes:
        """The next message of the process, empty when it closed its end; TimeoutError after the limit."""
        if not select.select([self.control], [], [], limit_s)[0]:
            raise TimeoutError
        try:
            return self.control.recv(8192)
        except ConnectionResetError:
            return b""

    @property
    def has_spoken(self) -> bool:
        """Whether there is a message that nobody asked for, or the end of the stream."""
        return bool(select.select([self.control], [], [], 0)[0])

    def resume(self) -> None:
        """Every thread of the process may run."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> Literal["quiet", "busy", "ended", "unstoppable"]:
        """Every thread of the process is stopped, if it can be; busy when other threads than the main one still ran.

        They are asleep by then, if they are no worse than OpenMP's: a thread that is stopped while it runs shares a
        core with the main thread for milliseconds when both are let go at once.
        """
        if self.status is not None:
            return "ended"
        quiet = wait_until_quiet(_QUIET_S, self.pid)
        deadline = time.monotonic() + _STOP_S
        while time.monotonic() < deadline:
            os.kill(self.pid, signal.SIGSTOP)
            pid, status = os.waitpid(self.pid, os.WUNTRACED | os.WNOHANG)
            if pid and not os.WIFSTOPPED(status):
                self.status = status
                return "ended"
            if pid:
                return "quiet" if quiet else "busy"
            time.sleep(_PAUSE_S)
        return "unstoppable"

    @property
    def kept_still(self) -> bool:
        """Whether the process, once stopped, has stayed so."""
        if self.status is not None:
            return False
        pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
        if pid and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
            self.status = status
        return not pid

    def has_ended(self, limit_s: float = _END_S) -> bool:
        """Whether the process has ended within the limit; its status is known then."""
        deadline = time.monotonic() + limit_s
        while self.status is None and time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
            else:
                time.sleep(_PAUSE_S)
        return self.status is not None

    def others(self) -> set[int]:
        """Live processes that the script started."""
        below = descendants(os.getpid()) - self._spare - {self.pid, self._first}
        return {pid for pid in below if alive(pid)}

    def resident_peak(self) -> int:
        """Most bytes that the process and those that it started held in memory, each at its own time."""
        return sum(resident_peak(pid) for pid in (self.pid, *self.others()))

    def end(self) -> None:
        """The process and everything that it started is dead."""
        if self.status is None:
            kill(self.pid)
        if self._first:
            kill(self._first)
        kill_descendants(os.getpid(), self._spare)
        self._close()

    def _close(self) -> None:
        self.control.close()
        os.close(self._log)
        assert self._launcher.stdin is not None
        self._launcher.stdin.close()


def _start(launch: Launch, control: int, log: int) -> subprocess.Popen[bytes]:
    scratch = (launch.folder / _SCRATCH).absolute()
    scratch.mkdir(mode=0o700, exist_ok=True)
    arguments = [argument.format(control=control) for argument in launch.arguments]
    command = [*launch.interpreter, str(_SCRIPT), str(control), str(scratch), str(launch.script), *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=scratch,
        env={**launch.environment, "HOME": str(scratch), "TMPDIR": str(scratch)},
        pass_fds=(control, *launch.descriptors), start_new_session=True,
    )  # fmt: skip
