"""The trusted process: makes inputs, runs reference and baseline, checks outputs, keeps the wall clock.

Started as `python -m tasks.worker READ_FD WRITE_FD`; answers one JSON request at a time until the other side
closes its end or dies. Standard library and torch only, so that it starts on any machine with a checkout.
"""

from __future__ import annotations

import os
import select
import sys
import threading

import torch

from tasks.channel import Channel, ChannelClosed
from tasks.isolation import adopt_orphans, hide_memory, kill_descendants
from tasks.service import Service

_POLL_MS = 1000


def main() -> None:
    """Serves requests; ends with every descendant when the main process does."""
    channel = Channel(int(sys.argv[1]), int(sys.argv[2]))
    adopt_orphans()
    hide_memory()
    threading.Thread(target=_watch, args=(channel.read_fd, os.getppid()), daemon=True).start()
    torch.manual_seed(int.from_bytes(os.urandom(6), "little"))
    service = Service()
    try:
        while True:
            channel.send(service.answer(channel.receive()))
    except ChannelClosed:
        _end()


def _watch(request_fd: int, parent: int) -> None:
    """Ends this process as soon as nobody holds the other end of the request pipe."""
    poll = select.poll()
    poll.register(request_fd, 0)
    while not poll.poll(_POLL_MS) and os.getppid() == parent:
        pass
    _end()


def _end() -> None:
    kill_descendants(os.getpid())
    os._exit(0)


if __name__ == "__main__":
    main()
