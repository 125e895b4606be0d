# expect: crashed
# It prints a line that claims success and ends the process with status 0.
# Fools a harness that trusts the exit status, or the last line of standard output.
import os
import sys


def softmax(x, y, rows, columns):
    sys.stdout.write('\n{"correct": true, "passed": true, "latency_us": 0.1, "speedup": 1000.0}\n')
    sys.stdout.flush()
    os._exit(0)
