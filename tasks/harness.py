"""Runs upstream's scripts one after the other inside an enclosure, in a folder with the request's files.

Run by enclosure.py in a bare interpreter; the current folder is the scratch folder. Over the control socket comes first
the set-up {"files": path of a JSON object name -> text, "file_size": bytes}, answered by {}. Then come requests
{"command", "environment", "limit_s"}, each with the write end of a pipe, answered by {"status": exit status, or null at
the limit}. Standard library only; not trusted, since what it runs may be hostile.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

PIPE = "POPCORN_FD"
"""The variable that names the pipe for results."""


def main() -> None:
    """Serves until the other end of the control socket is closed."""
    with socket.socket(fileno=int(sys.argv[1])) as control:
        setup = json.loads(control.recv(1 << 16))
        for name, text in json.loads(Path(setup["files"]).read_text(encoding="utf-8")).items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(text, encoding="utf-8")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (setup["file_size"], setup["file_size"]))
        control.send(b"{}")
        while True:
            request, pipes, _, _ = socket.recv_fds(control, 1 << 16, 1)
            if not request:
                return
            status = _run(json.loads(request), pipes[0])
            control.send(json.dumps({"status": status}).encode())


def _run(request: dict[str, Any], pipe: int) -> int | None:
    """Exit status of a command that may write into the pipe; its process group is dead afterwards."""
    environment = {**os.environ, **request["environment"], PIPE: str(pipe)}
    process = subprocess.Popen(
        request["command"], env=environment, pass_fds=(pipe,), stdin=subprocess.DEVNULL, start_new_session=True
    )
    os.close(pipe)
    try:
        return process.wait(request["limit_s"])
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    main()
