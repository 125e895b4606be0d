# expect: wrong_result
# Every element is 1 / columns: the exact result of constant input, a near one of small input.
# Fools a harness whose inputs are zeros, ones or tiny, or whose absolute tolerance exceeds the outputs.
def softmax(x, y, rows, columns):
    y.fill_(1 / columns)
