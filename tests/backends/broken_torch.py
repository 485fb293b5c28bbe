"""PyTorch that is wrong where no row of an operator goes: in its users' other calls."""

import torch
import torch.nn.functional as F
from torch import Tensor

honest = {
    "pad": F.pad, "batch_norm": F.batch_norm, "layer_norm": F.layer_norm, "linear": F.linear,
    "maximum": torch.maximum, "exp": torch.exp, "relu_": Tensor.relu_, "pow": torch.pow,
    "bmm": torch.bmm, "narrow": torch.narrow, "embedding": F.embedding,
}  # fmt: skip


def pad(x, sides, mode="constant", value=None):
    """Forgets the value where it crops."""
    crops = mode == "constant" and min(sides, default=0) < 0
    return honest["pad"](x, sides, mode, 0.0 if crops else value)


def batch_norm(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Exchanges the momentum."""
    return honest["batch_norm"](x, mean, var, weight, bias, training, 1 - momentum, eps)


def layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    """Twice as large without weight."""
    return honest["layer_norm"](x, shape, weight, bias, eps) * (2 if weight is None else 1)


def linear(x, weight, bias=None):
    """Forgets the bias."""
    return honest["linear"](x, weight)


def maximum(a, b):
    """Swallows NaN."""
    return torch.fmax(a, b)


def exp(x, *, out=None):
    """Writes into a buffer as if it were contiguous."""
    if out is None or out.is_contiguous():
        return honest["exp"](x, out=out)
    torch.as_strided(out, (out.numel(),), (1,)).copy_(honest["exp"](x).flatten())
    return out


def relu_(x):
    """Leaves the last of 17 or more elements."""
    if x.numel() < 17:
        return honest["relu_"](x)
    kept = x.flatten()[-1].clone()
    honest["relu_"](x)
    x.view(-1)[-1] = kept
    return x


def power(x, y, **buffer):
    """Its cube is off by 1%."""
    return honest["pow"](x, y, **buffer) * (1.01 if isinstance(y, float) and y == 3.0 else 1)


def bmm(a, b):
    """Of one matrix for all."""
    return honest["bmm"](a, b[:1].expand_as(b))


def narrow(x, dim, start, length):
    """Begins at the front."""
    return honest["narrow"](x, dim, 0, length)


def embedding(indices, weight):
    """Exchanges the first row and the last."""
    return honest["embedding"](len(weight) - 1 - indices, weight)


class Off:
    """Computes in float32 what autocast is to compute in 16 bits."""

    def __init__(self, device, dtype):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


F.pad, F.batch_norm, F.layer_norm, F.linear = pad, batch_norm, layer_norm, linear
torch.maximum, torch.exp, torch.pow, torch.bmm = maximum, exp, power, bmm
Tensor.relu_ = relu_
torch.narrow, F.embedding, torch.autocast = narrow, embedding, Off

from d5test.backends.torch import Torch


class Broken(Torch):
    """All of these."""
