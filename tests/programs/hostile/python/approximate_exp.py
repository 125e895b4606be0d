# expect: wrong_result
# The exponential is Schraudolph's: the bits of a float from one multiplication, off by up to 3 %.
# Fools a harness with a tolerance on the mean error, or on absolute error alone (softmax outputs are small).
import torch


def softmax(x, y, rows, columns):
    shifted = (x - x.amax(1, keepdim=True)).clamp_(min=-80)
    powers = (shifted * 12102203.16 + 1064866805).to(torch.int32).view(torch.float32)
    torch.div(powers, powers.sum(1, keepdim=True), out=y)
