# expect: wrong_result
# Every element is NaN, and no comparison with NaN is ever true.
# Fools a harness that fails only when (y - expected).abs().max() > tolerance.
def softmax(x, y, rows, columns):
    y.fill_(float("nan"))
