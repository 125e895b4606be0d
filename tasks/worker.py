"""The worker: the process that makes inputs, runs reference and baseline, checks outputs, keeps the wall clock.

Started as `python -m tasks.worker READ_FD WRITE_FD` it is the trusted process of a main process that is near: it
answers one JSON request at a time until the other side closes its end or dies. Started with `--spool DIR --out DIR2`
it serves requests that came as files, with such a process below it. Standard library and torch only, so that it
starts on any machine with a checkout.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
import threading
from pathlib import Path

from tasks.batch import Batch
from tasks.channel import Channel, ChannelClosed
from tasks.isolation import adopt_orphans, hide_memory, kill_descendants

_POLL_MS = 1000


def main() -> None:
    """Serves a main process or a spool, as the arguments say."""
    if len(sys.argv) == 3 and all(argument.isdigit() for argument in sys.argv[1:]):
        serve(int(sys.argv[1]), int(sys.argv[2]))
    else:
        sys.exit(_batch(sys.argv[1:]).run())


def _batch(arguments: list[str]) -> Batch:
    parser = argparse.ArgumentParser(
        prog="python -m tasks.worker", description="Evaluates every pending request of a spool; may be ended and "
        "started again at any time. Exit codes: 0 nothing is left, 75 something is.",
    )  # fmt: skip
    parser.add_argument("--spool", type=Path, required=True, metavar="DIR", help="where the search wrote its requests")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR2", help="where answers go; may be DIR itself")
    parser.add_argument("--limit-minutes", type=float, metavar="N", help="begin no evaluation after so many minutes")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="serve only requests for this device")
    given = parser.parse_args(arguments)
    if not given.spool.is_dir():
        parser.error(f"{given.spool} is no folder")
    return Batch(given.spool, given.out, given.device, given.limit_minutes)


def serve(read_fd: int, write_fd: int) -> None:
    """Answers requests; ends with every descendant when the main process does."""
    import torch

    from tasks.service import Service

    channel = Channel(read_fd, write_fd)
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
