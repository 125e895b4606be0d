"""A process that has imported PyTorch and nothing of any candidate, and forks one process for each candidate.

So a candidate starts in milliseconds instead of seconds. No CUDA call and no parallel region runs here before a fork.
Started as `python -m tasks.zygote CONTROL_FD`; one request, one reply, until the other side closes its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

from tasks import enclosure
from tasks.isolation import hide_memory, show_memory

FORKED = b"forked"
_SCRIPT = Path(__file__).with_name("guest.py")
_FDS = 4


def main() -> None:
    """Serves until the control socket is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _warm()
    hide_memory()
    with socket.socket(fileno=int(sys.argv[1])) as control:
        control.send(b"ready")
        while True:
            request, fds, _, _ = socket.recv_fds(control, 1 << 16, _FDS)
            if not request:
                return
            process = os.fork()
            if process == 0:
                _become(json.loads(request), fds, control.fileno())
            for fd in fds:
                os.close(fd)
            os.waitpid(process, 0)
            control.send(FORKED)


def _warm() -> None:
    import torch  # noqa: F401 - what every candidate needs

    with contextlib.suppress(ImportError):
        import triton  # noqa: F401


def _become(request: dict[str, object], fds: list[int], zygote: int) -> None:
    """This process is the launcher of a candidate; never returns."""
    os.close(zygote)
    guest, lifeline, log, *arena = fds
    os.dup2(lifeline, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    environment = request["environment"]
    assert isinstance(environment, dict)
    for key in set(os.environ) - set(environment):
        del os.environ[key]
    os.environ.update(environment)
    show_memory()
    shared = str(arena[0]) if arena else "-1"
    sys.argv = [
        "enclosure.py",
        str(guest),
        str(request["scratch"]),
        str(request["scratch_mib"]),
        "0",
        str(_SCRIPT),
        str(guest),
        shared,
    ]
    try:
        enclosure.main()
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
