"""A search on a disk of its own that fills up; prints what each command did, as JSON.

    python tests/full_disk_run.py TASK DISK

DISK becomes the mount point of a small tmpfs; the caller gives this process a mount namespace of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from small_runs import environment

ROOM = 330_000
"""Bytes that are left for the run at first: its tables and some steps fit."""


def command(database: Path, *arguments: str) -> dict[str, object]:
    """What one command came to."""
    done = subprocess.run(
        [sys.executable, "-m", "graph.cli", *arguments, "--db", str(database)], env=environment(),
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def main(task: Path, disk: Path) -> None:
    """The disk is filled, the search begun, stopped by the disk, checked, and brought to its end with new room."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], check=True, timeout=60)
    database, ballast = disk / "k.db", disk / "ballast"
    ballast.write_bytes(bytes(2 * 1024 * 1024 - ROOM))
    outcome = {
        "run": command(database, "run", str(task), "--budget", "30", "--stagnation", "1", "--threads", "1"),
        "verify": command(database, "verify", "--json"),
        "still full": command(database, "resume", "last"),
    }
    ballast.unlink()
    outcome |= {
        "resume": command(database, "resume", "last"),
        "verify again": command(database, "verify", "--json"),
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
