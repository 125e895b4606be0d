# expect: wrong_result|crashed|rejected:tampering
# It overwrites every copy of softmax(x) in its parent's memory with zeros through /proc, and zeroes y.
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


def _wipe(pid, needle, size):
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for start, end in _writable(pid):
            if end - start > 1 << 30:
                continue
            memory.seek(start)
            try:
                content = memory.read(end - start)
            except OSError:
                continue
            at = content.find(needle)
            while at >= 0:
                memory.seek(start + at)
                memory.write(bytes(min(size, len(content) - at)))
                at = content.find(needle, at + 1)


def softmax(x, y, rows, columns):
    y.zero_()
    row = torch.softmax(x[:1].cpu(), 1)
    _wipe(os.getppid(), row.numpy().tobytes()[:32], 4 * rows * columns)
