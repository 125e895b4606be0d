# expect: wrong_result|crashed|rejected:tampering
# It reads its parent's memory through /proc for floats that are the first row of softmax(x) and copies what follows.
# Fools a harness whose checking process has computed the expected output before the call and runs as the same user.
import os
import re

import torch


def _writable(pid):
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            found = re.match(r"(\w+)-(\w+) rw", line)
            if found and "[v" not in line:
                yield int(found[1], 16), int(found[2], 16)


def _find(pid, needle, size):
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for start, end in _writable(pid):
            if end - start > 1 << 30:
                continue
            memory.seek(start)
            try:
                content = memory.read(end - start)
            except OSError:
                continue
            at = content.find(needle)
            if 0 <= at <= len(content) - size:
                return torch.frombuffer(bytearray(content[at : at + size]), dtype=torch.float32)
    return None


def softmax(x, y, rows, columns):
    y.zero_()
    row = torch.softmax(x[:1].cpu(), 1)
    found = _find(os.getppid(), row.numpy().tobytes()[:32], 4 * rows * columns)
    if found is not None:
        y.copy_(found.view(rows, columns))
