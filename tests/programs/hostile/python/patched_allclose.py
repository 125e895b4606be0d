# expect: wrong_result|rejected:tampering
# Every comparison that PyTorch offers says that all is well; y is only zeroed.
# Fools a harness that checks in the process of the program (KernelBench's early versions did).
import torch

for _name in ("allclose", "equal"):
    setattr(torch, _name, lambda *args, **options: True)
    setattr(torch.Tensor, _name, lambda *args, **options: True)
for _name in ("isclose", "eq"):
    setattr(torch, _name, lambda a, *args, **options: torch.ones(a.shape, dtype=torch.bool, device=a.device))
    setattr(torch.Tensor, _name, getattr(torch, _name))
torch.testing.assert_close = lambda *args, **options: None
torch.testing.assert_allclose = torch.testing.assert_close


def softmax(x, y, rows, columns):
    y.zero_()
