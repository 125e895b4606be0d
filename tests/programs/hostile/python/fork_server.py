# expect: rejected:left_process|wrong_result|crashed
# A forked copy of the process answers in its place; the parent of both sees the first process end well.
# Fools a harness that waits for the process it started and lets whoever holds the pipe talk.
import os


def softmax(x, y, rows, columns):
    y.zero_()
    if os.fork():
        os._exit(0)
    os.setsid()
