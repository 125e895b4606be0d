# Online softmax: a row is read twice in blocks, with a running maximum and sum; any number of columns.
import triton
import triton.language as tl


@triton.jit
def _row(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    highest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        value = tl.load(x + row + start + at, mask=start + at < columns, other=-1e30)
        higher = tl.maximum(highest, value)
        total = total * tl.exp(highest - higher) + tl.exp(value - higher)
        highest = higher
    top = tl.max(highest, 0)
    scale = 1.0 / tl.sum(tl.where(highest > -1e29, total * tl.exp(highest - top), 0.0), 0)
    for start in range(0, columns, BLOCK):
        value = tl.load(x + row + start + at, mask=start + at < columns, other=-1e30)
        tl.store(y + row + start + at, tl.exp(value - top) * scale, mask=start + at < columns)


def softmax(x, y, rows, columns):
    _row[(rows,)](x, y, columns, BLOCK=1024, num_warps=4)
