# expect: timed_out
# It sleeps for an hour at import.
# Fools a harness whose time limit begins with the first call.
import time

time.sleep(3600)


def softmax(x, y, rows, columns):
    y.copy_(x.softmax(1))
