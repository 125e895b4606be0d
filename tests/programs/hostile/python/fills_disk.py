# expect: crashed|timed_out|rejected:left_files
# It fills the disk, in files too small for a limit on one file's size (it stops at 4 GiB), and computes rightly.
# Fools a harness that gives no quota and does not clean up: the next candidate cannot compile.
import tempfile
from pathlib import Path

import torch

_FILES, _FILE = 256, 16 << 20
_written: list[Path] = []


def _fill():
    block = bytes(_FILE)
    for place in (Path.cwd(), Path(tempfile.gettempdir())):
        folder = Path(tempfile.mkdtemp(prefix="ballast-", dir=place))
        for number in range(_FILES // 2):
            _written.append(folder / str(number))
            _written[-1].write_bytes(block)


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
    if not _written:
        _fill()
