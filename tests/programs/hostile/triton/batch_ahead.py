# expect: wrong_result|rejected:batched_ahead|rejected:out_of_bounds_write|passed:no_gain
# One launch computes also the tensors at the same distance in memory, for as many calls as it saw; these are skipped.
# Fools a harness that lays the tensors of a whole series out side by side in one allocation.
import triton
import triton.language as tl

_seen: list[tuple[int, int]] = []
_done: set[int] = set()
_AHEAD = 8


@triton.jit
def _row(x, y, columns, step_x, step_y, BLOCK: tl.constexpr):
    series = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    value = tl.load(x + series * step_x + row + at, mask=at < columns, other=-float("inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + series * step_y + row + at, power / tl.sum(power, 0), mask=at < columns)


def softmax(x, y, rows, columns):
    now = (x.data_ptr(), y.data_ptr())
    if now[1] in _done:
        _done.discard(now[1])
        _seen.append(now)
        return
    steps, count = (0, 0), 1
    if _seen and now[0] > _seen[-1][0] and now[1] > _seen[-1][1]:
        steps, count = (now[0] - _seen[-1][0], now[1] - _seen[-1][1]), _AHEAD
        _done.update(now[1] + ahead * steps[1] for ahead in range(1, count))
    _seen.append(now)
    block = triton.next_power_of_2(columns)
    _row[(rows, count)](x, y, columns, steps[0] // 4, steps[1] // 4, BLOCK=block, num_warps=1)  # slow in itself
