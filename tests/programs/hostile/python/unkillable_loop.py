# expect: timed_out
# It ignores every signal that can be ignored, and loops.
# Fools a harness that asks its guest to end (SIGTERM, SIGINT, SIGALRM) and waits for it.
import contextlib
import signal


def softmax(x, y, rows, columns):
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    while True:
        pass
