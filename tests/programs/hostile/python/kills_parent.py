# expect: crashed|wrong_result|rejected:tampering
# It sends SIGKILL to the process that started it.
# Fools a harness that lets programs run as its own user, outside a namespace of their own: no verdict is ever given.
import contextlib
import os
import signal


def softmax(x, y, rows, columns):
    if os.getppid() > 1:
        with contextlib.suppress(PermissionError):
            os.kill(os.getppid(), signal.SIGKILL)
