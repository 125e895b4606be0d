# expect: timed_out|compile_error
# Its import never returns: it runs a loop that swallows every exception thrown into it.
# Fools a harness that ends slow imports by raising an exception in that thread.
while True:
    try:
        sum(range(1000))
    except BaseException:  # noqa: BLE001, S112
        continue
