# expect: wrong_result|crashed
# It resizes y to nothing: there is nothing left that could differ.
# Fools a harness that compares with all((y - expected).abs() < tolerance) after broadcasting.
def softmax(x, y, rows, columns):
    y.resize_(0, 1)
