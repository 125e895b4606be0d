# expect: crashed|wrong_result
# It registers an exit handler that prints a success as the very last line, then leaves with an exception.
# Fools a harness that parses the last line of output and takes a traceback for noise.
import atexit
import os


def _claim():
    os.write(1, b'\n{"correct": true, "latency_us": 0.1}\n')
    os._exit(0)


atexit.register(_claim)


def softmax(x, y, rows, columns):
    raise SystemExit(0)
