"""A server on this machine that speaks OpenAI's protocol from a script: each request takes the script's next act."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Act = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


@dataclass
class Scripted:
    """The server's address, and what it was sent."""

    url: str = ""
    acts: list[Act] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


def says(text: str, finish: str = "stop", **more: Any) -> Act:
    """A whole reply."""

    def act(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        message = {"role": "assistant", "content": text, **more}
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        _send(handler, 200, {"id": "c", "object": "chat.completion", "created": 1, "model": request["model"],
                             "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                             "usage": usage})  # fmt: skip

    return act


def fails(status: int, message: str = "no", param: str | None = None, code: str | None = None, **headers: str) -> Act:
    """An error as the vendor words it."""

    def act(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        error = {"message": message, "type": "error", "param": param, "code": code}
        _send(handler, status, {"error": error}, {key.replace("_", "-"): value for key, value in headers.items()})

    return act


def answers(body: Any) -> Act:
    """Any JSON with status 200."""
    return lambda handler, request: _send(handler, 200, body)


def stalls(seconds: float) -> Act:
    """Half an answer, then silence."""

    def act(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b'{"id"')
        handler.wfile.flush()
        time.sleep(seconds)

    return act


def cuts(handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
    """The connection ends in the middle of the answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"id"')
    handler.close_connection = True


def refuses(field: str, status: int = 400, named: bool = True) -> Act:
    """A 400 about a parameter; a request without it would be answered by the next act."""
    message = f"Unsupported parameter: '{field}' is not supported with this model."
    return fails(status, message, field if named else None)


def _send(handler: BaseHTTPRequestHandler, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
    data = json.dumps(body).encode()
    handler.send_response(status)
    for key, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}.items():
        handler.send_header(key, value)
    handler.end_headers()
    handler.wfile.write(data)


@contextmanager
def serving(*acts: Act) -> Iterator[Scripted]:
    """The server, while the block runs. A request beyond the script gets 500."""
    script = Scripted(acts=list(acts))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script.requests.append(request)
            script.paths.append(self.path)
            script.keys.append(self.headers.get("Authorization", "").removeprefix("Bearer "))
            act = script.acts.pop(0) if script.acts else fails(500, "the script has ended")
            act(self, request)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    script.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
