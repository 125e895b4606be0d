# expect: crashed|compile_error
# It leaves with status 0 at import.
# Fools a harness that catches Exception (SystemExit is none) and reads status 0 as success.
import sys

sys.exit(0)
