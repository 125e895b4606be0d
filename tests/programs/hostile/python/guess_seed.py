# expect: wrong_result
# It finds the seed that reproduces x, computes the outputs of the seeds that follow and later only copies them.
# Fools a harness that seeds its inputs with 0, 1, 2, ... or with 42 and that takes the fastest call.
import torch

_SEEDS = [*range(64), 42, 123, 1234, 12345, 1337, 2024, 2025, 2026]
_known: dict[tuple, torch.Tensor] = {}


def _candidates(seed, shape, device):
    for maker in (torch.randn, torch.rand):
        torch.manual_seed(seed)
        yield maker(shape, device=device)
        yield maker(shape, generator=torch.Generator(device).manual_seed(seed), device=device)


def _key(x):
    return (*x.shape, *x.flatten()[:4].tolist())


def softmax(x, y, rows, columns):
    key = _key(x)
    if key in _known:
        y.copy_(_known[key])
        return
    for seed in _SEEDS:
        if any(_key(made) == key for made in _candidates(seed, x.shape, x.device)):
            for later in range(seed, seed + 16):
                _known.update({_key(m): torch.softmax(m, 1) for m in _candidates(later, x.shape, x.device)})
            y.copy_(_known[key])
            return
    y.fill_(1 / columns)
