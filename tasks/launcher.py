"""Starts candidates' processes, each in an enclosure of its own: a bare interpreter, or a fork of the zygote."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tasks.driver import DeviceSick
from tasks.isolation import kill

_HERE = Path(__file__).parent
_START_S = 20.0
_TORCH_SCRATCH_MIB = 768
"""Size of the scratch folder where a program may bring compilers: enough for their caches."""
_WARM_S = 180.0
"""Seconds that the zygote may take to import PyTorch."""
_KEPT = ("OMP_", "GOMP_", "GLIBC_", "KSEARCH_MARK")
_KEPT_BY_TORCH = (*_KEPT, "LD_LIBRARY_PATH", "CUDA_", "PYTHONPATH", "NVIDIA_", "TRITON_PTXAS")


@dataclass(frozen=True)
class Room:
    """What a bare interpreter's script may write, in memory."""

    scratch_mib: int = 64
    shared_mib: int = 0
    """Size of a /dev/shm of its own, which semaphores need."""


@dataclass(frozen=True)
class Started:
    """A candidate's process, alone and idle, as a child of this one."""

    process: int
    control: socket.socket
    log: int
    lifeline: int
    """While it is open the process may live."""
    keepers: frozenset[int]
    """Processes of the enclosure itself: the first one of the pid namespace."""
    enclosure: tuple[str, ...]
    """What of the enclosure is in force, in words."""

    def close(self) -> None:
        """The descriptors are closed; the process is not touched."""
        self.control.close()
        os.close(self.log)
        os.close(self.lifeline)


_CANDIDATES = Room()


class Launcher:
    """One way of starting candidates below one folder. Not safe for use by several threads at once."""

    def __init__(
        self, uses_torch: bool, folder: Path, script: Path = _HERE / "candidate.py", room: Room = _CANDIDATES
    ) -> None:
        """A bare interpreter runs `script` in this `room`; the zygote has a script and a room of its own."""
        self.uses_torch = uses_torch
        self._room = room
        self._script = script
        self._scratch = (folder / "scratch").absolute()
        self._zygote: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None

    def prepare(self) -> None:
        """What takes long is done: the zygote has imported PyTorch. Raises DeviceSick when it cannot."""
        if not self.uses_torch or (self._zygote is not None and self._zygote.poll() is None):
            return
        self.close()
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", "-m", "tasks.zygote", str(theirs.fileno())]
            self._zygote = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),))
        self._orders.settimeout(_WARM_S)
        self._hear(self._orders, "the process that candidates are forked from")
        self._orders.settimeout(_START_S)

    def start(self, fds: tuple[int, ...]) -> Started:
        """A new process that inherits these descriptors and waits for its set-up; `prepare` came before.

        Raises DeviceSick.
        """
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(mode=0o700)
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.settimeout(_START_S)
        watched, lifeline = os.pipe()
        log = os.memfd_create("ksearch-log", os.MFD_CLOEXEC)
        try:
            try:
                given = (theirs.fileno(), watched, log, *fds)
                launched = self._fork(given) if self.uses_torch else self._spawn(given)
            finally:
                theirs.close()
                os.close(watched)
            answer = json.loads(self._hear(control, "the candidate's process"))
            if launched is not None:
                launched.wait(_START_S)
            control.send(b"go")
            enclosure = json.loads(self._hear(control, "the candidate's process"))
        except BaseException:
            control.close()
            os.close(lifeline)
            os.close(log)
            raise
        control.settimeout(None)
        keepers = frozenset({answer["first"]} - {0})
        return Started(answer["process"], control, log, lifeline, keepers, tuple(enclosure))

    def close(self) -> None:
        """The zygote is dead."""
        if self._orders is not None:
            self._orders.close()
            self._orders = None
        if self._zygote is not None:
            kill(self._zygote.pid)
            self._zygote.wait()
            self._zygote = None

    def _spawn(self, given: tuple[int, ...]) -> subprocess.Popen[bytes]:
        """The enclosure's launcher under a bare interpreter."""
        control, watched, log, *arena = given
        sizes = (self._room.scratch_mib, self._room.shared_mib)
        words = [_HERE / "enclosure.py", control, self._scratch, *sizes, self._script, control]
        command = [sys.executable, "-I", "-S", *map(str, words)]
        return subprocess.Popen(command, stdin=watched, stdout=log, stderr=log, env=self._environment(),
                                pass_fds=(control, *arena), start_new_session=True)  # fmt: skip

    def _fork(self, given: tuple[int, ...]) -> subprocess.Popen[bytes] | None:
        """The enclosure's launcher as a fork of the zygote, which has reaped it: None is left to wait for."""
        assert self._orders is not None
        request = {"scratch": str(self._scratch), "scratch_mib": _TORCH_SCRATCH_MIB, "environment": self._environment()}
        socket.send_fds(self._orders, [json.dumps(request).encode()], list(given))
        self._hear(self._orders, "the process that candidates are forked from")
        return None

    def _hear(self, whom: socket.socket, who: str) -> bytes:
        try:
            said = whom.recv(1 << 16)
        except (TimeoutError, OSError):
            said = b""
        if not said:
            raise DeviceSick(f"{who} could not be started")
        return said

    def _environment(self) -> dict[str, str]:
        """What the candidate may know: how many threads, malloc's settings, where CUDA and caches are."""
        prefixes = _KEPT_BY_TORCH if self.uses_torch else _KEPT
        kept = {key: value for key, value in os.environ.items() if key.startswith(prefixes)}
        scratch = str(self._scratch)
        caches = {"TRITON_CACHE_DIR": f"{scratch}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/inductor",
                  "TORCHINDUCTOR_COMPILE_THREADS": "1"}  # fmt: skip
        own = caches if self.uses_torch else {}
        return {
            **kept,
            **own,
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": scratch,
            "TMPDIR": scratch,
            "LC_ALL": "C",
        }
