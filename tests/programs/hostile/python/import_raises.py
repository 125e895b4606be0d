# expect: crashed|compile_error
# It raises at import.
# Fools a harness that takes a failure to load for a failure of its own and tries again, or goes on without it.
raise RuntimeError("no such kernel for this device")
