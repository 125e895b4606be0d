# expect: wrong_result|crashed
# It resizes y to nothing: there is nothing left that could differ.
# Fools a harness that compares element by element over zip(y, expected), which ends with the shorter one.
def softmax(x, y, rows, columns):
    y.resize_(0, 1)
