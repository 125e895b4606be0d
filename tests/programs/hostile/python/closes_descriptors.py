# expect: rejected:broken_channel|crashed|timed_out
# It closes every descriptor, the harness's socket too.
# Fools a harness that waits for a reply without noticing that the other end has gone.
import os


def softmax(x, y, rows, columns):
    os.closerange(3, 4096)
    while True:
        os.sched_yield()
