"""Puts a script into Linux namespaces of its own: it sees no other process, no network and no writable disk.

Run as a script by a bare interpreter: enclosure.py CONTROL_FD SCRATCH_FOLDER SCRATCH_MIB SHARED_MIB SCRIPT ARGUMENTS...
SHARED_MIB is the size of a /dev/shm of the script's own; with 0 it sees the machine's, read-only.
Whoever starts it is a child subreaper and holds the other ends of the control socket (SOCK_SEQPACKET) and of standard
input. It is sent the process ids of the script and of the namespace's first process (0 where there is none), reaps
this process, which ends at once, sends a message of its own, and is told what is in force. Where standard input ends,
everything ends.
Imports nothing of the project and little of the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import sys
from ctypes import c_char_p, c_int, c_uint, c_uint64, c_ulong, c_void_p

_FILES_PER_MIB = 64
_NAMESPACES = (
    ("user", 0x10000000), ("mount", 0x00020000), ("pid", 0x20000000), ("network", 0x40000000), ("ipc", 0x08000000),
)  # fmt: skip
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 8, 32, 4096
_MS_REC, _MS_PRIVATE = 16384, 1 << 18
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY = 1
_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 24, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_MACHINE_WIDE = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mount.argtypes = (c_char_p, c_char_p, c_char_p, c_ulong, c_char_p)
_LIBC.prctl.argtypes = (c_int, c_ulong, c_ulong, c_ulong, c_ulong)
_LIBC.syscall.argtypes = (c_ulong, c_int, c_char_p, c_uint, c_void_p, c_ulong)


def main() -> None:
    """The script has run, in whatever of the enclosure this machine allows."""
    control, scratch, sizes, script = int(sys.argv[1]), sys.argv[2], (int(sys.argv[3]), int(sys.argv[4])), sys.argv[5]
    inside = _unshare()
    first = _fork_first() if "pid" in inside else 0
    child = os.fork()
    if child:
        os.write(control, json.dumps({"process": child, "first": first}).encode())
        os._exit(0)
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if not os.read(control, 64):
        os._exit(1)
    in_force = inside + (_close_off(scratch, sizes, inside) if "mount" in inside else [])
    in_force += _give_up_rights()
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.chdir(scratch)
    os.write(control, json.dumps(in_force).encode())  # fails where the parent died before it could be watched
    sys.argv[:] = sys.argv[5:]
    runpy.run_path(script, run_name="__main__")


def _unshare() -> list[str]:
    """Names of the namespaces that this process (or, for pid, its children) now has of its own."""
    user, group = os.getuid(), os.getgid()
    inside = [name for name, flag in _NAMESPACES if _LIBC.unshare(flag) == 0]
    if "user" in inside:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    return inside


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _fork_first() -> int:
    """The first process of the pid namespace: no signal from inside ends it, and with it everything inside ends."""
    first = os.fork()
    if first:
        return first
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans are reaped by the kernel
    os.closerange(1, os.sysconf("SC_OPEN_MAX"))
    _give_up_rights()
    while os.read(0, 64):
        continue
    os._exit(0)


def _close_off(scratch: str, sizes: tuple[int, int], inside: list[str]) -> list[str]:
    """What of the file system is closed: all of it read-only, but for a small scratch folder in memory."""
    done = []
    scratch_mib, shared_mib = sizes
    _LIBC.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
    attributes = (c_uint64 * 4)(_MOUNT_ATTR_RDONLY, 0, 0, 0)
    size = ctypes.sizeof(attributes)
    if _LIBC.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, ctypes.byref(attributes), size) == 0:
        done.append("read-only files")
    options = f"size={scratch_mib}m,nr_inodes={_FILES_PER_MIB * scratch_mib},mode=700".encode()
    if _LIBC.mount(b"scratch", os.fsencode(scratch), b"tmpfs", _MS_NOSUID | _MS_NODEV, options) == 0:
        done.append(f"scratch of {scratch_mib} MiB")
    options = f"size={shared_mib}m,mode=1777".encode()
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    if shared_mib and _LIBC.mount(b"shared", b"/dev/shm", b"tmpfs", flags, options) == 0:
        done.append(f"shared memory of {shared_mib} MiB")
    if "pid" in inside and _own_proc("user" in inside):
        done.append("own /proc")
    return done


def _own_proc(own_user: bool) -> bool:
    """/proc shows this namespace alone; no further user namespace, with rights anew, can be made.

    A process may write what /proc holds of itself (CUDA does), and nothing that concerns the whole machine.
    """
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    if _LIBC.mount(b"proc", b"/proc", b"proc", flags, None) != 0:
        return False
    if own_user:
        _write("/proc/sys/user/max_user_namespaces", "0")
    closed = [path for path in _MACHINE_WIDE if os.path.exists(path)]  # noqa: PTH110 - pathlib is slow to import
    return all(_read_only(os.fsencode(path), flags) for path in closed)


def _read_only(path: bytes, flags: int) -> bool:
    bound = _LIBC.mount(path, path, None, _MS_BIND, None) == 0
    return bound and bool(_LIBC.mount(None, path, None, flags | _MS_REMOUNT | _MS_BIND | _MS_RDONLY, None) == 0)


def _give_up_rights() -> list[str]:
    """No capability is left in any set, and no program that is executed brings one back."""
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _LIBC.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header, sets = (c_uint * 2)(_CAPABILITY_VERSION_3, 0), (c_uint * 6)()
    return ["no capabilities"] if _LIBC.capset(header, sets) == 0 else []


if __name__ == "__main__":
    main()
