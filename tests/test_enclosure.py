"""A script in an enclosure sees and reaches nothing of the machine, and where there is no enclosure it still runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
START = f"""
import json, os, sys, time
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tasks.confined import Confined
from tasks.launcher import Launcher
from tasks.isolation import adopt_orphans, alive, descendants
adopt_orphans()
def start(script, folder):
    return Confined(Launcher(False, Path(folder), Path(script)), ())
"""
LOOK = """
import json, os, sys
def tried(path):
    try:
        with open(path, "w") as file:
            file.write("x")
        return "written"
    except OSError as error:
        return os.strerror(error.errno)
def filled():
    try:
        with open("full", "wb") as file:
            for mib in range(1000):
                file.write(bytes(1 << 20))
    except OSError:
        pass
    return mib
paths = [os.path.abspath(__file__), "/dev/null", "/proc/sys/kernel/core_pattern", "here"]
seen = {
    "pids": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()), "parent": os.getppid(),
    "written": [tried(path) for path in paths], "arguments": sys.argv, "mib": filled(),
    "interfaces": open("/proc/net/dev").read().count(":"),
    "rights": [line.split()[1] for line in open("/proc/self/status") if line.startswith("Cap")],
}
os.write(int(sys.argv[1]), json.dumps(seen).encode())
"""
OUTSIDE = """
process = start(sys.argv[1], sys.argv[2])
print(json.dumps({"enclosure": process.enclosure, "seen": json.loads(process.receive(20))}))
process.end()
assert not [pid for pid in descendants(os.getpid()) if alive(pid)]
"""


def launched(folder: Path, inside: str, outside: str = OUTSIDE) -> dict[str, Any]:
    """What a parent prints that starts the script `inside`."""
    (folder / "inside.py").write_text(inside)
    (folder / "outside.py").write_text(START + outside)
    command = [sys.executable, str(folder / "outside.py"), str(folder / "inside.py"), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_a_script_sees_and_reaches_nothing_that_is_not_its_own(tmp_path: Path) -> None:
    found = launched(tmp_path, LOOK)
    force, seen = found["enclosure"], found["seen"]
    assert force[-1] == "no capabilities"
    assert set(seen["rights"]) == {"0" * 16}
    assert len(seen["arguments"]) == 2
    if "own /proc" in force:
        assert seen["pids"] == [1, 2]
        assert seen["parent"] == 0
    if "read-only files" in force:
        assert seen["written"][:2] == ["Read-only file system", "written"]
        assert seen["written"][3] == "written"
    if "own /proc" in force:
        assert seen["written"][2] == "Read-only file system"
    if "network" in force:
        assert seen["interfaces"] == 1
    if "scratch of 64 MiB" in force:
        assert seen["mib"] < 65
        assert not list((tmp_path / "scratch").iterdir())


def test_without_namespaces_a_script_runs_and_the_enclosure_says_so(tmp_path: Path) -> None:
    """Within an enclosure no further one is to be had."""
    (tmp_path / "innermost.py").write_text('import os, sys; os.write(int(sys.argv[1]), b"here")')
    nested = (
        START
        + f"""
process = start({str(tmp_path / "innermost.py")!r}, ".")
answer = {{"inner": process.enclosure, "said": process.receive(20).decode()}}
process.end()
os.write(int(sys.argv[1]), json.dumps(answer).encode())
"""
    )
    found = launched(tmp_path, nested)
    if "own /proc" in found["enclosure"]:
        assert found["seen"] == {"inner": ["no capabilities"], "said": "here"}


def test_a_stopped_script_stays_stopped_and_its_end_is_noticed(tmp_path: Path) -> None:
    script = "import os, sys; control = int(sys.argv[1]); os.write(control, b'1'); os.read(control, 9); sys.exit(7)"
    outside = """
process = start(sys.argv[1], sys.argv[2])
process.receive(20)
seen = [process.stop(), process.kept_still]
process.resume()
seen += [process.kept_still, process.stop(), process.others() == set()]
process.resume()
process.control.send(b"end")
seen += [process.has_ended(), os.waitstatus_to_exitcode(process.status), process.stop()]
process.end()
print(json.dumps({"seen": seen}))
"""
    found = launched(tmp_path, script, outside)
    assert found["seen"] == ["quiet", True, False, "quiet", True, True, 7, "ended"]


def test_everything_inside_ends_with_the_parent(tmp_path: Path) -> None:
    inside = """
import os, sys, time
if not os.fork():
    os.setsid()
    os.write(int(sys.argv[1]), b"forked")
    time.sleep(600)
time.sleep(600)
"""
    outside = """
process = start(sys.argv[1], sys.argv[2])
process.receive(20)
below = sorted(descendants(os.getpid()))
print(json.dumps({"below": below, "enclosure": process.enclosure}), flush=True)
os._exit(0)
"""
    found = launched(tmp_path, inside, outside)
    deadline = time.monotonic() + 10
    expected = len(found["below"]) if "pid" in found["enclosure"] else 1
    assert len(found["below"]) == (3 if "pid" in found["enclosure"] else 2)
    while sum(not Path(f"/proc/{pid}").exists() for pid in found["below"]) < expected:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for pid in found["below"]:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, 9)
