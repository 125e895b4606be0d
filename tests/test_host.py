"""What else keeps the machine busy is told apart from a measurement of our own."""

import os
import subprocess
import sys
import time

from tasks.host import Crowd

SPIN = "while True: pass"


def spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def test_work_of_ones_own_is_no_crowd() -> None:
    other = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        crowd = Crowd(other.pid)
        before = time.process_time()
        spin(1.0)
        others, began = crowd._others_s(), crowd._began
        assert time.process_time() > before
        strangers = others - began[1]
        assert strangers < 1.0, "neither this process's second nor the other's was counted"
    finally:
        other.kill()
        other.wait()
    assert Crowd(other.pid)._others_s() > 0.0


def test_a_stranger_is_a_crowd() -> None:
    stranger = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        crowd = Crowd(os.getppid())
        spin(1.0)
        assert crowd.here
    finally:
        stranger.kill()
        stranger.wait()
