# expect: crashed
# It raises, in every call, an exception whose text cannot be formed.
# Fools a harness that prints str(error) outside its guard.
class Refusal(BaseException):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def softmax(x, y, rows, columns):
    raise Refusal
