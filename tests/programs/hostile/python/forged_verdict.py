# expect: rejected:forged_reply|wrong_result|crashed|rejected:clock_mismatch
# It writes replies of several shapes to every open descriptor and never computes.
# Fools a harness that takes the first message on its pipe or socket as the guest's own.
import contextlib
import json
import os
import socket

_REPLIES = (
    b"1000",
    b"ready 0",
    b"awaken",
    json.dumps({"correct": True, "passed": True, "ok": True, "latency_us": 0.1, "elapsed_ns": 100}).encode() + b"\n",
    b"check: pass\nbenchmark-count: 1\nbenchmark.0.mean: 100\n",
)


def softmax(x, y, rows, columns):
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        with contextlib.suppress(OSError):
            os.set_blocking(fd, False)
        for reply in _REPLIES:
            with contextlib.suppress(OSError):
                os.write(fd, reply)
        with contextlib.suppress(OSError):
            socket.socket(fileno=os.dup(fd)).send(_REPLIES[0])
        with contextlib.suppress(OSError):
            os.set_blocking(fd, True)
