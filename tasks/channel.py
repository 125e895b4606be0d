"""JSON messages, one a line, over a pair of private pipes. Standard library only."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

Message = dict[str, Any]


class ChannelClosed(Exception):
    """The other side has gone."""


class Channel:
    """One end of a pair of pipes; owns both file descriptors."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self.write_fd = write_fd
        self._buffer = b""

    def send(self, message: Message) -> None:
        """The message is in the pipe; ChannelClosed when nobody reads it."""
        data = memoryview(json.dumps(message).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self.write_fd, data) :]
        except BrokenPipeError:
            raise ChannelClosed from None

    def receive(self, limit_s: float | None = None) -> Message:
        """The next message; TimeoutError after the limit, ChannelClosed at the end of the stream."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while b"\n" not in self._buffer:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self.read_fd], [], [], left)
            if not ready:
                raise TimeoutError
            chunk = os.read(self.read_fd, 1 << 16)
            if not chunk:
                raise ChannelClosed
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: Message = json.loads(line)
        return message

    def close(self) -> None:
        """Both descriptors are closed."""
        os.close(self.read_fd)
        os.close(self.write_fd)
