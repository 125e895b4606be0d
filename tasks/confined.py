"""A script's process in an enclosure, as its parent holds it: stopped, resumed, ended. Standard library only."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

from tasks.isolation import alive, descendants, held_in_files, kill, kill_descendants, resident_peak, wait_until_quiet
from tasks.launcher import Launcher

_TIMESTAMPS = 35
"""SO_TIMESTAMPNS, and the kind of its control messages."""
_TIMESPEC = struct.Struct("@ll")
_STOP_S = 1.0
_END_S = 2.0
_QUIET_S = 0.02
_TAIL = 1500
_PAUSE_S = 0.0001


class Confined:
    """A candidate's process in its enclosure. The caller is a child subreaper."""

    def __init__(self, launcher: Launcher, descriptors: tuple[int, ...]) -> None:
        """A fresh process that inherits these descriptors. Raises DeviceSick when none can be started."""
        launcher.prepare()
        self._spare = frozenset(descendants(os.getpid()))
        self.status: int | None = None
        """Wait status, once the process is known to have ended."""
        self._ended = False
        self._given = frozenset(os.fstat(descriptor).st_ino for descriptor in descriptors)
        try:
            self._started = launcher.start(descriptors)
        except BaseException:
            kill_descendants(os.getpid(), self._spare)
            raise
        self.pid = self._started.process
        self.control = self._started.control
        self.control.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
        self.sent_ns = 0
        """When the latest message was sent, by the kernel's clock (time.time_ns): waking its reader comes later."""
        self.enclosure = self._started.enclosure

    def last_words(self) -> str:
        """The end of what the script printed."""
        size = os.lseek(self._started.log, 0, os.SEEK_END)
        return os.pread(self._started.log, _TAIL, max(0, size - _TAIL)).decode(errors="replace").strip()

    def receive(self, limit_s: float) -> bytes:
        """The next message of the process, empty when it closed its end; TimeoutError after the limit."""
        if not select.select([self.control], [], [], limit_s)[0]:
            raise TimeoutError
        try:
            message, notes, _, _ = self.control.recvmsg(8192, socket.CMSG_SPACE(_TIMESPEC.size))
        except ConnectionResetError:
            return b""
        self.sent_ns = time.time_ns()
        for _, kind, note in notes:
            if kind == _TIMESTAMPS:
                seconds, nanoseconds = _TIMESPEC.unpack(note[: _TIMESPEC.size])
                self.sent_ns = seconds * 1_000_000_000 + nanoseconds
        return message

    @property
    def has_spoken(self) -> bool:
        """Whether there is a message that nobody asked for, or the end of the stream."""
        return bool(select.select([self.control], [], [], 0)[0])

    def resume(self) -> None:
        """Every thread of the process may run."""
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def on_another_core(self) -> Iterator[None]:
        """This thread and the process's main thread each keep to a core of their own, where there are two."""
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) < 2:
            yield
            return
        os.sched_setaffinity(0, cores[:1])
        try:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(self.pid, cores[1:2])
            yield
        finally:
            os.sched_setaffinity(0, cores)
            with suppress(ProcessLookupError):
                os.sched_setaffinity(self.pid, cores)

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
        below = descendants(os.getpid()) - self._spare - {self.pid} - self._started.keepers
        return {pid for pid in below if alive(pid)}

    def resident_peak(self) -> int:
        """Most bytes that the process and those that it started held in memory, each at its own time.

        What lies in anonymous files counts as it is now.
        """
        return sum(resident_peak(pid) + held_in_files(pid, self._given) for pid in (self.pid, *self.others()))

    def end(self) -> None:
        """The process and everything that it started is dead. Ending it twice is once."""
        if self._ended:
            return
        self._ended = True
        if self.status is None:
            kill(self.pid)
        for keeper in self._started.keepers:
            kill(keeper)
        kill_descendants(os.getpid(), self._spare)
        self._started.close()
