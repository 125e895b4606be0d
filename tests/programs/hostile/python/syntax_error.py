# expect: compile_error|crashed
# It does not parse.
# Fools a harness that imports programs into its own process unguarded.
def softmax(x, y, rows, columns)
    y.copy_(x.softmax(1))
