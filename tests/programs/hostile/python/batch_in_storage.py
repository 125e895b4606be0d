# expect: wrong_result|rejected:batched_ahead|rejected:out_of_bounds_write|passed:no_gain
# From the second call on it knows the distance between inputs, computes those that follow in memory and skips them.
# Fools a harness that lays the tensors of a whole series out side by side in one allocation.
import torch

_seen: list[tuple[int, int]] = []
_done: set[int] = set()


def _ahead(tensor, step, storage_end):
    offset = tensor.storage_offset() + step
    if step <= 0 or offset + tensor.numel() > storage_end:
        return None
    return torch.as_strided(tensor, tensor.shape, tensor.stride(), offset)


def softmax(x, y, rows, columns):
    offsets = (x.storage_offset(), y.storage_offset())
    if y.data_ptr() in _done:
        _seen.append(offsets)
        return
    torch.softmax(x, 1, out=y)
    _done.add(y.data_ptr())
    if _seen:
        steps = [new - old for new, old in zip(offsets, _seen[-1], strict=True)]
        ends = [t.untyped_storage().nbytes() // 4 for t in (x, y)]
        for _ in range(1000):
            x, y = (_ahead(t, step, end) for t, step, end in zip((x, y), steps, ends, strict=True))
            if x is None or y is None:
                break
            torch.softmax(x, 1, out=y)
            _done.add(y.data_ptr())
    _seen.append(offsets)
