# expect: crashed|wrong_result|timed_out|rejected:tampering
# It stops its parent while it works: the parent's wall clock sees the time, but nothing in it can act on a limit.
# Fools a harness whose time limit lives in the process that can be stopped.
import contextlib
import os
import signal
import time


def softmax(x, y, rows, columns):
    if os.getppid() > 1:
        with contextlib.suppress(PermissionError):
            os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(3600)
