"""Processes of this machine: who descends from whom, and how to stop, resume and end them. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_KILL_S = 5.0
_LIBC = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Descendants whose parent dies become children of this process, so that daemons stay in sight."""
    if _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """As `adopt_orphans`, until the end of the block."""
    before = ctypes.c_int()
    _LIBC.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    adopt_orphans()
    try:
        yield
    finally:
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def hide_memory() -> None:
    """Processes of the same (non-root) user can neither trace this process nor read its memory."""
    _LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def show_memory() -> None:
    """The opposite of `hide_memory`: /proc/self belongs to this process's user again."""
    _LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and parent of a process; None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    state, parent = text[text.rindex(b")") + 2 :].split()[:2]
    return state.decode(), int(parent)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    found = _stat(pid)
    return found is not None and found[0] not in "ZX"


def resident_peak(pid: int) -> int:
    """Most bytes that a live process ever held in memory; 0 when it is gone.

    Unlike wait4's ru_maxrss, which begins at the parent's own size.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def held_in_files(pid: int, given: frozenset[int]) -> int:
    """Bytes of the anonymous files in memory (memfd) that a live process has open; no memory limit counts them.

    Those with a given inode number do not count.
    """
    total = 0
    for number in _numbers(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{number}"
        with contextlib.suppress(OSError):
            if os.readlink(path).startswith("/memfd:"):  # noqa: PTH115
                found = os.stat(path)  # noqa: PTH116 - as in _numbers
                total += 0 if found.st_ino in given else found.st_blocks * 512
    return total


def _numbers(folder: str) -> Iterator[int]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - Path.iterdir is slower, and this runs between timed calls
    except OSError:
        return
    yield from (int(name) for name in names if name.isdigit())


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    for thread in _numbers(f"/proc/{pid}/task"):
        try:
            text = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
            found.update(int(word) for word in text.split())
        except FileNotFoundError:
            if Path(f"/proc/{pid}/task/{thread}").exists():
                return _children_by_scan(pid)
        except OSError:
            continue
    return found


def _children_by_scan(pid: int) -> set[int]:
    """For kernels without /proc/PID/task/TID/children."""
    return {other for other in _numbers("/proc") if (found := _stat(other)) and found[1] == pid}


def descendants(root: int) -> set[int]:
    """Every process below root, zombies too, in whatever session or process group it hides."""
    seen: set[int] = set()
    frontier = [root]
    while frontier:
        fresh = _children(frontier.pop()) - seen
        seen |= fresh
        frontier.extend(fresh)
    return seen


def marked(mark: str) -> set[int]:
    """Live processes whose initial environment holds the text: finds orphans that lost their parent."""
    found = set()
    for pid in _numbers("/proc"):
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in environment and alive(pid) and pid != os.getpid():
            found.add(pid)
    return found


def kill(pid: int) -> None:
    """SIGKILL is on its way, unless the process is gone already."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def kill_descendants(root: int, spare: frozenset[int] = frozenset()) -> set[int]:
    """No live process is left below root but the spared ones; returns those that had to be killed.

    Orphans of this process itself are reaped.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline:
        below = descendants(root) - spare
        living = {pid for pid in below if alive(pid)}
        for pid in living:
            kill(pid)
        killed |= living
        if root == os.getpid():
            _reap(below)
        if not living:
            break
        time.sleep(0.001)
    return killed


def _reap(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def end_tree(pid: int, mark: str) -> None:
    """The process and everything below it is dead, and whatever else carries the mark."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    kill_descendants(pid)
    kill(pid)
    deadline = time.monotonic() + _KILL_S
    while time.monotonic() < deadline and (strays := marked(mark)):
        for stray in strays:
            kill(stray)
        time.sleep(0.002)


def wait_until_quiet(limit_s: float, pid: int | None = None) -> bool:
    """True once no thread but the main one of a process (of this one by default) is running.

    OpenMP threads spin for a while after work.
    """
    deadline = time.monotonic() + limit_s
    while _busy(pid or os.getpid()):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.0002)
    return True


def _busy(pid: int) -> bool:
    for thread in _numbers(f"/proc/{pid}/task"):
        if thread == pid:
            continue
        try:
            text = Path(f"/proc/{pid}/task/{thread}/stat").read_bytes()
        except OSError:
            continue
        if text[text.rindex(b")") + 2 : text.rindex(b")") + 3] == b"R":
            return True
    return False


def usable_cores() -> int:
    """Physical cores that this process may run on, no more than its cgroup's quota."""
    allowed = os.sched_getaffinity(0)
    cores = set()
    for cpu in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text() if siblings.exists() else str(cpu))
    quota = Path("/sys/fs/cgroup/cpu.max")
    words = quota.read_text().split() if quota.exists() else ["max"]
    if words[0] == "max":
        return len(cores)
    return max(1, min(len(cores), -(-int(words[0]) // int(words[1]))))
