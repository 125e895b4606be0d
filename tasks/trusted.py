"""The trusted process as its parent holds it: started on first use, asked, and replaced when it fails.

Standard library only: the parent is the main process, or the worker that serves a spool.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

from tasks.channel import Channel, ChannelClosed, Message
from tasks.errors import EvaluatorUnavailable, TaskError, WorkFailed
from tasks.isolation import end_tree
from tasks.tool import ToolMissing

_ROOT = Path(__file__).resolve().parent.parent
_START_S = 300.0
_TAIL = 1500
_KEPT = {
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "CC", "CXX",
    "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "VIRTUAL_ENV", "SYSTEMROOT",
}  # fmt: skip
_KEPT_PREFIXES = ("OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "ATEN_", "TORCH", "LC_", "CUDA_", "NVIDIA_",
                  "TRITON_")  # fmt: skip
_REMOVED = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Settings that may put idle OpenMP threads to sleep: they would make PyTorch two to four times slower."""
_SPIN_COUNT = 30_000
"""How long idle OpenMP threads of both sides spin: about a millisecond, which keeps them awake within a call and
leaves the cores to the other side soon after it (libgomp's own choice is ten times as long)."""
_ALLOCATOR = (
    "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=8589934592:glibc.malloc.top_pad=268435456"
)
"""Keeps freed memory in the process: otherwise every large tensor of the baseline costs page faults."""


def defeat(reason: object) -> Message:
    """The reply to an evaluation that failed in two fresh processes while the device was there: the program did it."""
    message = f"the evaluation itself failed twice under this program, the last time so: {reason}"
    verdict = {"kind": "crashed", "signal": "harness", "message": message}
    return {"verdict": verdict, "compile_s": 0.0, "evaluate_s": 0.0, "raced": []}


def trusted_environment(threads: int, given: dict[str, str]) -> dict[str, str]:
    """The environment of the trusted process: no secrets, malloc and OpenMP set for steady timings."""
    kept = {
        key: value
        for key, value in given.items()
        if (key in _KEPT or key.startswith(_KEPT_PREFIXES)) and key not in _REMOVED
    }
    path = [str(_ROOT), *filter(None, [given.get("PYTHONPATH")])]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "GOMP_SPINCOUNT": str(_SPIN_COUNT),
        "GLIBC_TUNABLES": _ALLOCATOR,
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def removed_settings(given: dict[str, str]) -> dict[str, str]:
    """What the receipt says about settings of the user's that were left out."""
    return {key: f"removed (was {given[key]!r})" for key in _REMOVED if key in given}


class TrustedProcess:
    """A warm worker for one task. Not safe for use by several threads at once."""

    def __init__(self, load: Message, threads: int, folder: Path) -> None:
        self.mark = f"KSEARCH_MARK={secrets.token_hex(8)}"
        self.loaded: Message = {}
        """The worker's answer to being loaded: its versions and environment."""
        self._load = load
        self._threads = threads
        self._folder = folder
        self._log = folder / "trusted.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None

    @property
    def pid(self) -> int | None:
        """Of the running process; None when there is none."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """The process runs and has loaded the task. Raises TaskError, EvaluatorUnavailable."""
        if self._process is not None and self._process.poll() is None:
            return
        self.end()
        theirs_read, ours_write = os.pipe()
        ours_read, theirs_write = os.pipe()
        key, value = self.mark.split("=")
        command = [sys.executable, "-P", "-m", "tasks.worker", str(theirs_read), str(theirs_write)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder,
                env={**trusted_environment(self._threads, dict(os.environ)), key: value},
                pass_fds=(theirs_read, theirs_write), start_new_session=True,
            )  # fmt: skip
        os.close(theirs_read)
        os.close(theirs_write)
        self._channel = Channel(ours_read, ours_write)
        try:
            self.loaded = self.ask({"do": "load", **self._load}, _START_S)
        except WorkFailed as error:
            raise EvaluatorUnavailable(str(error)) from None
        except (TaskError, ToolMissing):
            self.end()
            raise
        self.loaded["environment"] |= removed_settings(dict(os.environ))

    def ask(self, request: Message, limit_s: float) -> Message:
        """The worker's reply. Raises TaskError, ToolMissing or EvaluatorUnavailable (WorkFailed: by this request).

        After anything but a reply, a TaskError or a ToolMissing the process is dead, and so is everything below it.
        """
        assert self._channel is not None
        doing = request["do"]
        try:
            self._channel.send(request)
            reply = self._channel.receive(limit_s)
        except ChannelClosed:
            reason = self._obituary()
            self.end()
            raise WorkFailed(f"the trusted process {reason} during {doing!r}{self._tail()}") from None
        except TimeoutError:
            self.end()
            raise WorkFailed(
                f"the trusted process gave no answer to {doing!r} within {limit_s:.0f} s and was stopped{self._tail()}"
            ) from None
        except BaseException:
            self.end()
            raise
        return self._checked(reply)

    def _checked(self, reply: Message) -> Message:
        if "task_error" in reply:
            raise TaskError(reply["task_error"])
        if "tool_missing" in reply:
            raise ToolMissing(reply["tool_missing"])
        if "unavailable" in reply:
            self.end()  # the next one begins with a fresh context
            raise (WorkFailed if "worn_out" in reply else EvaluatorUnavailable)(reply["unavailable"])
        return reply

    def end(self) -> None:
        """The process and everything below it is dead."""
        if self._process is not None:
            end_tree(self._process.pid, self.mark)
            self._process.wait()
            self._process = None
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _obituary(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        return f"was ended by signal {-code}" if code < 0 else f"ended with exit status {code}"

    def _tail(self) -> str:
        """The last words of the process, if any."""
        size = self._log.stat().st_size if self._log.exists() else 0
        if not size:
            return ""
        with self._log.open("rb") as file:
            file.seek(max(0, size - _TAIL))
            return ". Its last output:\n" + file.read().decode(errors="replace").strip()
