# expect: wrong_result
# The exponentials are kept in bfloat16; sums are exact, so rows still add up to one.
# Fools a harness that compares with an absolute tolerance only, or checks that rows sum to one.
import torch


def softmax(x, y, rows, columns):
    powers = (x - x.amax(1, keepdim=True)).bfloat16().exp_().float()
    torch.div(powers, powers.sum(1, keepdim=True), out=y)
