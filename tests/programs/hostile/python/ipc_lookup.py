# expect: wrong_result|crashed|rejected:tampering
# It searches shared memory (own mappings, /dev/shm, descriptors of its parent) for rows that are softmax(x).
# Fools a harness that passes the expected output, or keeps it, in shared memory that the program can open.
import mmap
import os
from pathlib import Path

import torch


def _shared_files():
    for folder in ("/proc/self/fd", f"/proc/{os.getppid()}/fd", "/proc/self/map_files"):
        if Path(folder).is_dir() and os.access(folder, os.R_OK):
            yield from (str(path) for path in Path(folder).iterdir())
    yield from (str(path) for path in Path("/dev/shm").iterdir() if path.is_file())


def _find(needle, size):
    for path in _shared_files():
        try:
            with open(path, "rb", opener=lambda p, flags: os.open(p, os.O_RDONLY | os.O_NONBLOCK)) as file:
                content = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            continue
        at = content.find(needle)
        if 0 <= at <= len(content) - size:
            return torch.frombuffer(bytearray(content[at : at + size]), dtype=torch.float32)
    return None


def softmax(x, y, rows, columns):
    y.zero_()
    row = torch.softmax(x[:1].cpu(), 1)
    found = _find(row.numpy().tobytes()[:32], 4 * rows * columns)
    if found is not None:
        y.copy_(found.view(rows, columns))
