# expect: compile_error|crashed
# It does not parse.
# Fools a harness that imports programs into its own process unguarded.
import triton


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr)
    pass


def softmax(x, y, rows, columns):
    _row[(rows,)](x, y, columns, BLOCK=1024)
