"""Tensors of numbers that are drawn by chance: they have a distribution, and no value.

`distribution` is what they are judged by, `forward` an honest sample of it.
"""

from dataclasses import dataclass

import numpy as np

from d5test.case import Operator, dtype_of
from d5test.dtypes import NAMES
from d5test.reference.distributions import Categorical, Normal, Uniform

__all__ = [
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True, repr=False)
class Random(Operator):
    """Each element is drawn by itself, from the generator that begins with `seed`."""

    dtype: int | None = None
    seed: float | None = None
    since = 22
    random = True
    typed = True

    def distribution(self, *inputs):
        """What the elements are drawn from."""
        raise NotImplementedError

    def made(self, *inputs):
        """The shape of the output, and its dtype's name: the first input's unless `dtype` says."""
        (x, *_) = inputs
        return x.shape, x.dtype.name if self.dtype is None else NAMES[self.dtype]

    def forward(self, *inputs):
        shape, dtype = self.made(*inputs)
        seed = None if self.seed is None else int(np.float32(self.seed).view(np.uint32))
        drawn = self.distribution(*inputs).draw(np.random.default_rng(seed), shape)
        return np.asarray(drawn).astype(dtype_of(dtype))


@dataclass(frozen=True, kw_only=True, repr=False)
class Made(Random):
    """Of a shape that is an attribute, without inputs."""

    shape: tuple[int, ...]
    dtype: int = 1

    @property
    def output_datatype(self):
        """ONNX's number of the dtype under test."""
        return self.dtype

    def made(self):
        return tuple(self.shape), NAMES[self.dtype]

    def forward(self):
        return super().forward()


@dataclass(frozen=True, kw_only=True, repr=False)
class Like(Random):
    """Of the shape of x, and of its dtype unless `dtype` is another's number."""

    def forward(self, x):
        return super().forward(x)


@dataclass(frozen=True, kw_only=True, repr=False)
class Normally(Operator):
    """From the normal distribution with mean `mean` and standard deviation `scale`."""

    mean: float = 0.0
    scale: float = 1.0

    def distribution(self, *inputs):
        return Normal(self.mean, self.scale)


@dataclass(frozen=True, kw_only=True, repr=False)
class Uniformly(Operator):
    """Uniform between `low` and `high`. ONNX excludes neither; roundings reach both."""

    low: float = 0.0
    high: float = 1.0

    def distribution(self, *inputs):
        return Uniform(self.low, self.high)


@dataclass(frozen=True, kw_only=True, repr=False)
class RandomNormal(Normally, Made):
    """A normal sample of a shape. ONNX RandomNormal-22."""


@dataclass(frozen=True, kw_only=True, repr=False)
class RandomNormalLike(Normally, Like):
    """A normal sample of the shape of x: any, of numbers. ONNX RandomNormalLike-22."""


@dataclass(frozen=True, kw_only=True, repr=False)
class RandomUniform(Uniformly, Made):
    """A uniform sample of a shape. ONNX RandomUniform-22."""


@dataclass(frozen=True, kw_only=True, repr=False)
class RandomUniformLike(Uniformly, Like):
    """A uniform sample of the shape of x: any, of numbers. ONNX RandomUniformLike-22."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Bernoulli(Random):
    """1 with probability p, else 0. ONNX Bernoulli-22. p, y: any shape."""

    def distribution(self, p):
        p = p.astype(np.float64)
        return Categorical(np.stack((1 - p, p), -1))

    def forward(self, p):
        return super().forward(p)


@dataclass(frozen=True, kw_only=True, repr=False)
class Multinomial(Random):
    """Classes by their unnormalised log-probabilities. ONNX Multinomial-22.

    x: (n, classes); y: (n, sample_size), each row of samples from its row of x. A class whose
    log-probability is -inf is never drawn.
    """

    dtype: int = 6
    sample_size: int = 1

    def distribution(self, x):
        x = x.astype(np.float64)
        below = x - x.max(-1, keepdims=True)
        p = np.exp(below)
        least = below.min(where=np.isfinite(below), initial=0)
        p = (p / p.sum(-1, keepdims=True))[:, None]
        return Categorical(p, condition=2 + x.shape[-1] - least)

    def made(self, x):
        return (len(x), self.sample_size), NAMES[self.dtype]

    def forward(self, x):
        return super().forward(x)
