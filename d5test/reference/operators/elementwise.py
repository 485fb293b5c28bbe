"""Elementwise functions, of one input and of several, which broadcast.

Functions of one input without attributes, and Add, Sub, Mul and Div, are tables of formulas. A row
is a name, the version of ONNX, f(x) or f(a, b), its derivatives, and the text of its
documentation. The derivative f'(x) is a function of x and y; those by a and b come times dy.
None stands for the derivative of what ONNX's schema calls not differentiable.

Where ONNX has a function body, the formulas are its. The derivative of an exponential is written
by the output, sign and all, since frameworks keep that and not the input: in 16 bits it may be
zero where the input is not. Where an attribute is negative, the output has not the input's sign.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import pi, sqrt
from typing import Any, ClassVar

import numpy as np
from scipy.special import erf, expit

from d5test.case import Operator
from d5test.reference.operators.broadcasting import Broadcasting, unbroadcast

__all__ = [
    "Abs", "Erf", "Exp", "Gelu", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal",
    "Relu", "Sigmoid", "Softplus", "Sqrt", "Tanh",
]  # fmt: skip
__all__ += ["Acos", "Asin", "Atan", "Cos", "Sin", "Tan"]
__all__ += ["Acosh", "Asinh", "Atanh", "Cosh", "Sinh"]
__all__ += ["Ceil", "Floor", "Identity", "Round", "Sign", "Softsign", "Swish"]
__all__ += ["Celu", "Elu", "HardSigmoid", "PRelu", "Selu", "Shrink", "ThresholdedRelu"]
__all__ += ["Add", "Clip", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum"]
__all__ += ["Mod", "SwiGLU"]

Formula = Callable[..., Any]


@dataclass(frozen=True, kw_only=True, repr=False)
class Unary(Broadcasting):
    """y = f(x), element by element; dx = dy f'(x). x, y: any shape."""

    function: ClassVar[Formula]
    derivative: ClassVar[Formula]
    other_function: ClassVar[Formula | None] = None
    other_derivative: ClassVar[Formula | None] = None
    factored: ClassVar[Formula | None] = None
    """Another formula of the derivative, whose own derivative cancels."""

    def forward(self, x):
        return type(self).function(x)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,), (y,) = grads, inputs, outputs
        return dy * type(self).derivative(x, y)

    def other_forward(self, x):
        other = type(self).other_function
        return None if other is None else (other(x),)

    def other_backward(self, grads, inputs):
        (dy,), (x,), other = grads, inputs, type(self).other_derivative
        return None if other is None else (dy * other(x),)

    def other_slopes(self, grads, inputs):
        yield from super().other_slopes(grads, inputs)
        (dy,), (x,), factored = grads, inputs, type(self).factored
        if factored is not None:
            yield (dy * factored(x),)


@dataclass(frozen=True, kw_only=True, repr=False)
class Binary(Broadcasting):
    """y = f(a, b), element by element, with NumPy's broadcasting.

    The gradient of an input is summed over the axes along which it was broadcast.
    """

    function: ClassVar[Formula]
    derivative: ClassVar[Formula]

    def forward(self, a, b):
        return type(self).function(a, b)

    def backward(self, grads, inputs, outputs):
        (dy,), (a, b), (y,) = grads, inputs, outputs
        da, db = type(self).derivative(dy, a, b, y)
        return unbroadcast(da, a.shape), unbroadcast(db, b.shape)


UNDERIVED = {"backward": Operator.backward, "other_backward": Operator.other_backward}


def row(
    base: type[Operator], operands: str, name: str, since: int,
    function: Formula, derivative: Formula | None, doc: str, **more: Formula | bool,
) -> Any:  # fmt: skip
    """The operator of one row; `more` are other formulas of its class, or what it says of it."""
    members = {
        "__doc__": f"{doc} ONNX {name}-{since}. {operands}",
        "__module__": __name__,
        "__qualname__": name,
        "since": since,
        "function": staticmethod(function),
        **({"derivative": staticmethod(derivative)} if derivative else UNDERIVED),
        **{name: staticmethod(said) if callable(said) else said for name, said in more.items()},
    }
    return dataclass(frozen=True, kw_only=True, repr=False)(type(name, (base,), members))


unary = partial(row, Unary, "x, y: any shape.")
binary = partial(row, Binary, "a, b: shapes that broadcast.")


def hard_swish_derivative(x, y):
    """The gate, and x times its slope, which is 1 / 6 where it is neither shut nor open."""
    line = x / 6 + 0.5
    return np.clip(line, 0, 1) + np.where((line > 0) & (line < 1), x / 6, 0)


def mish_by_squares(x):
    """tanh(ln z) is (z^2 - 1) / (z^2 + 1)."""
    z = np.exp(x) + 1
    return x * ((z * z - 1) / (z * z + 1))


def mish_derivative(x, y):
    """t + x (1 - t^2) / (1 + e^-x) with t = y / x, which is a tanh."""
    t = np.tanh(np.log(np.exp(x) + 1))
    return t + x * (1 - t * t) / (1 + np.exp(-x))


def atanh_backward_by_factors(grads, inputs):
    """1 - x^2 in two factors, one after the other: what is between them may be subnormal."""
    (dy,), (x,) = grads, inputs
    return (dy * (1 / (1 + x)) / (1 - x),)


# fmt: off
Abs = unary("Abs", 13, np.abs, lambda x, y: np.sign(x), "y = |x|.")
Erf = unary("Erf", 13, erf, lambda x, y: 2 / sqrt(pi) * np.exp(-x * x),
            "The error function, y = 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.")
Exp = unary("Exp", 13, np.exp, lambda x, y: y, "y = e^x.")
HardSwish = unary("HardSwish", 22, lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
                  hard_swish_derivative,
                  "y = x max(0, min(1, x / 6 + 1 / 2)). Howard et al., arXiv 1905.02244, 5.2.")
Identity = unary("Identity", 25, lambda x: x.copy(), lambda x, y: 1.0, "y = x.", unchanged=True)
Log = unary("Log", 13, np.log, lambda x, y: 1 / x, "The natural logarithm, y = ln x.")
Mish = unary("Mish", 22, lambda x: x * np.tanh(np.log(np.exp(x) + 1)), mish_derivative,
             "y = x tanh(ln(1 + e^x)). Misra, arXiv 1908.08681, equation 1.",
             other_function=mish_by_squares)
Neg = unary("Neg", 13, lambda x: -x, lambda x, y: -1.0, "y = -x.")
Reciprocal = unary("Reciprocal", 13, lambda x: 1 / x, lambda x, y: -y * y, "y = 1 / x.")
Relu = unary("Relu", 14, lambda x: np.maximum(x, 0), lambda x, y: x > 0, "y = max(x, 0).")
Sigmoid = unary("Sigmoid", 13, expit, lambda x, y: y * (1 - y),
                "The logistic function, y = 1 / (1 + e^-x).")
Softplus = unary("Softplus", 22, lambda x: np.log(np.exp(x) + 1),
                 lambda x, y: 1 / (1 + np.exp(-x)),
                 "y = ln(e^x + 1), as ONNX's function body has it.")
Sqrt = unary("Sqrt", 13, np.sqrt, lambda x, y: 0.5 / y, "y = sqrt(x).")
Tanh = unary("Tanh", 13, np.tanh, lambda x, y: 1 - y * y, "The hyperbolic tangent, y = tanh(x).",
             other_derivative=lambda x: 1 / np.square(np.cosh(x)),
             factored=lambda x: (1 + np.tanh(x)) * (1 - np.tanh(x)))

Sin = unary("Sin", 22, np.sin, lambda x, y: np.cos(x), "y = sin(x), x in radians.")
Cos = unary("Cos", 22, np.cos, lambda x, y: -np.sin(x), "y = cos(x), x in radians.")
Tan = unary("Tan", 22, np.tan, lambda x, y: 1 + y * y, "y = tan(x), x in radians.",
            other_derivative=lambda x: 1 / np.square(np.cos(x)))
Asin = unary("Asin", 22, np.arcsin, lambda x, y: 1 / np.sqrt(1 - x * x),
             "The inverse of the sine, y from -pi / 2 to pi / 2, of x from -1 to 1.")
Acos = unary("Acos", 22, np.arccos, lambda x, y: -1 / np.sqrt(1 - x * x),
             "The inverse of the cosine, y from 0 to pi, of x from -1 to 1.")
Atan = unary("Atan", 22, np.arctan, lambda x, y: 1 / (1 + x * x),
             "The inverse of the tangent, y from -pi / 2 to pi / 2.")
Sinh = unary("Sinh", 22, np.sinh, lambda x, y: np.cosh(x), "The hyperbolic sine, y = sinh(x).")
Cosh = unary("Cosh", 22, np.cosh, lambda x, y: np.sinh(x), "The hyperbolic cosine, y = cosh(x).")
Asinh = unary("Asinh", 22, np.arcsinh, lambda x, y: 1 / np.sqrt(x * x + 1),
              "The inverse of the hyperbolic sine.",
              other_derivative=lambda x: 1 / np.cosh(np.arcsinh(x)))
Acosh = unary("Acosh", 22, np.arccosh, lambda x, y: 1 / np.sqrt(x * x - 1),
              "The inverse of the hyperbolic cosine, y >= 0, of x >= 1.",
              other_derivative=lambda x: 1 / np.sinh(np.arccosh(x)))
Atanh = unary("Atanh", 22, np.arctanh, lambda x, y: 1 / (1 - x * x),
              "The inverse of the hyperbolic tangent, of x from -1 to 1.",
              other_backward=atanh_backward_by_factors)

Floor = unary("Floor", 13, np.floor, None, "The largest whole number that is not above x.")
Ceil = unary("Ceil", 13, np.ceil, None, "The smallest whole number that is not below x.")
Round = unary("Round", 22, np.rint, None, "The nearest whole number, of two the even one.")
Sign = unary("Sign", 13, np.sign, None, "1 where x > 0, -1 where x < 0, 0 at 0.", exact=True)
# fmt: on


@dataclass(frozen=True, kw_only=True, repr=False)
class LeakyRelu(Unary):
    """y = x where x >= 0, alpha x elsewhere. ONNX LeakyRelu-16. x, y: any shape."""

    alpha: float = float(np.float32(0.01))  # what ONNX stores: a FLOAT is a float32
    since = 16

    def forward(self, x):
        return np.where(x < 0, self.alpha * x, x)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return np.where(x < 0, self.alpha * dy, dy)


@dataclass(frozen=True, kw_only=True, repr=False)
class Softsign(Unary):
    """y = x / (1 + |x|). ONNX Softsign-22. x, y: any shape.

    Frameworks differentiate the quotient, 1 / (1 + |x|) - |x| / (1 + |x|)^2, which cancels.
    """

    since = 22

    def forward(self, x):
        return x / (1 + np.abs(x))

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return dy / np.square(1 + np.abs(x))

    def other_backward(self, grads, inputs):
        (dy,), (x,) = grads, inputs
        y = 1 + np.abs(x)
        return (dy / y - dy * (1 / (y * y)) * np.abs(x),)


@dataclass(frozen=True, kw_only=True, repr=False)
class Swish(Unary):
    """y = x / (1 + e^(-alpha x)). ONNX Swish-24. x, y: any shape.

    Ramachandran, Zoph and Le, arXiv 1710.05941, equation 1.
    """

    alpha: float = 1.0
    since = 24

    def forward(self, x):
        return x * expit(self.alpha * x)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        s = expit(self.alpha * x)
        return dy * (s * (1 + self.alpha * x * (1 - s)))


@dataclass(frozen=True, kw_only=True, repr=False)
class SwiGLU(Broadcasting):
    """y = b Swish(a). ONNX SwiGLU-28; Shazeer, arXiv 2002.05202. a, b, y: of one shape."""

    alpha: float = 1.0
    since = 28

    def forward(self, a, b):
        return Swish(alpha=self.alpha).forward(a) * b

    def backward(self, grads, inputs, outputs):
        (dy,), (a, b), swish = grads, inputs, Swish(alpha=self.alpha)
        return swish.backward((dy * b,), (a,), None), dy * swish.forward(a)


@dataclass(frozen=True, kw_only=True, repr=False)
class Gelu(Unary):
    """The Gaussian error linear unit, x times the normal distribution function. ONNX Gelu-20.

    approximate="none": y = x (1 + erf(x / sqrt(2))) / 2
    approximate="tanh": y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2

    Hendrycks and Gimpel, arXiv 1606.08415, section 2. x, y: any shape.
    """

    approximate: str = "none"
    since = 20

    def forward(self, x):
        if self.approximate == "tanh":
            return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))
        return 0.5 * x * (1 + erf(x / sqrt(2)))

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        if self.approximate == "tanh":
            t = np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x))
            dt = (1 - t * t) * sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x)
            return dy * (0.5 * (1 + t) + 0.5 * x * dt)
        density = np.exp(-0.5 * x * x) / sqrt(2 * pi)
        return dy * (0.5 * (1 + erf(x / sqrt(2))) + x * density)


# What ONNX stores: a FLOAT is a float32.
SELU_ALPHA = float(np.float32(1.6732632423543772))
SELU_GAMMA = float(np.float32(1.0507009873554805))
FIFTH, SIXTH = float(np.float32(0.2)), float(np.float32(1 / 6))


def elu(x, alpha):
    """alpha (e^x - 1) where x < 0, x elsewhere."""
    return np.where(x < 0, alpha * (np.exp(x) - 1), x)


@dataclass(frozen=True, kw_only=True, repr=False)
class Elu(Unary):
    """y = alpha (e^x - 1) where x < 0, x elsewhere. ONNX Elu-22. x, y: any shape.

    Clevert, Unterthiner and Hochreiter, arXiv 1511.07289, equation 15.
    """

    alpha: float = 1.0
    since = 22

    def forward(self, x):
        return elu(x, self.alpha)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,), (y,) = grads, inputs, outputs
        bent = y < 0 if self.alpha > 0 else x < 0
        return dy * np.where(bent, y + self.alpha, 1.0)


@dataclass(frozen=True, kw_only=True, repr=False)
class Selu(Unary):
    """y = gamma (alpha e^x - alpha) where x < 0, gamma x elsewhere. ONNX Selu-22.

    x, y: any shape. Klambauer et al., arXiv 1706.02515, equation 2.
    """

    alpha: float = SELU_ALPHA
    gamma: float = SELU_GAMMA
    since = 22

    def forward(self, x):
        return np.where(x < 0, self.gamma * (self.alpha * np.exp(x) - self.alpha), self.gamma * x)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,), (y,) = grads, inputs, outputs
        bent = y < 0 if self.alpha > 0 and self.gamma > 0 else x < 0
        return dy * np.where(bent, y + self.gamma * self.alpha, self.gamma)


@dataclass(frozen=True, kw_only=True, repr=False)
class Celu(Unary):
    """y = alpha (e^(x / alpha) - 1) where x < 0, x elsewhere. ONNX Celu-12. x, y: any shape.

    Barron, arXiv 1704.07483, equation 2.
    """

    alpha: float = 1.0
    since = 12

    def forward(self, x):
        if self.alpha < 0:
            return np.where(x < 0, self.alpha * (np.exp(x / self.alpha) - 1), x)
        return self.alpha * elu(x / self.alpha, 1.0)

    def backward(self, grads, inputs, outputs):
        (dy,), (y,) = grads, outputs
        return dy * np.where(y < 0, y / self.alpha + 1, 1.0)


@dataclass(frozen=True, kw_only=True, repr=False)
class HardSigmoid(Unary):
    """y = max(0, min(1, alpha x + beta)). ONNX HardSigmoid-22. x, y: any shape."""

    alpha: float = FIFTH
    beta: float = 0.5
    since = 22

    def forward(self, x):
        return np.clip(self.alpha * x + self.beta, 0, 1)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        line = self.alpha * x + self.beta
        return dy * np.where((line > 0) & (line < 1), self.alpha, 0)


@dataclass(frozen=True, kw_only=True, repr=False)
class ThresholdedRelu(Unary):
    """y = x where x > alpha, 0 elsewhere. ONNX ThresholdedRelu-22. x, y: any shape.

    Konda, Memisevic and Krueger, arXiv 1402.3337, equation 9.
    """

    alpha: float = 1.0
    since = 22

    def forward(self, x):
        return np.where(x <= self.alpha, 0, x)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return dy * np.where(x <= self.alpha, 0, 1)


@dataclass(frozen=True, kw_only=True, repr=False)
class Shrink(Unary):
    """y = x + bias where x < -lambd, x - bias where x > lambd, 0 elsewhere. ONNX Shrink-9.

    x, y: any shape. With bias = lambd it is Donoho's soft thresholding.
    """

    bias: float = 0.0
    lambd: float = 0.5
    since = 9

    def forward(self, x):
        return np.where(self.inside(x), 0, np.where(x < 0, x + self.bias, x - self.bias))

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        return dy * np.where(self.inside(x), 0, 1)

    def inside(self, x):
        """Whether x is so near to zero that y is."""
        return (x >= -self.lambd) & (x <= self.lambd)


@dataclass(frozen=True, kw_only=True, repr=False)
class PRelu(Broadcasting):
    """y = x where x >= 0, slope x elsewhere. ONNX PRelu-16.

    x, y: any shape; slope: a shape that broadcasts to x's.
    He et al., arXiv 1502.01852, equation 1.
    """

    since = 16

    def forward(self, x, slope):
        return np.where(x < 0, slope * x, x)

    def backward(self, grads, inputs, outputs):
        (dy,), (x, slope) = grads, inputs
        dx = np.where(x < 0, slope * dy, dy)
        return dx, unbroadcast(dy * np.where(x < 0, x, 0), slope.shape)


def quotient(a, b):
    """a / b; of integers truncated towards zero."""
    if a.dtype.kind not in "iuO":
        return a / b
    return a // b + ((a % b != 0) & ((a < 0) != (b < 0)))


# fmt: off
Add = binary("Add", 14, lambda a, b: a + b, lambda dy, a, b, y: (dy, dy), "y = a + b.")
Sub = binary("Sub", 14, lambda a, b: a - b, lambda dy, a, b, y: (dy, -dy), "y = a - b.")
Mul = binary("Mul", 14, lambda a, b: a * b, lambda dy, a, b, y: (dy * b, dy * a), "y = a b.")
Div = binary("Div", 14, quotient, lambda dy, a, b, y: (dy / b, -dy * y / b),
             "y = a / b; of integers truncated towards zero.")
# fmt: on


@dataclass(frozen=True, kw_only=True, repr=False)
class Pow(Broadcasting):
    """z = x^y, with broadcasting. ONNX Pow-15.

    x floating-point; y floating-point, where x has to be positive, or of an integer type, which
    has no gradient. dx = dz y x^(y - 1), which is 0 for a y of 0. dy = dz z ln x, which is 0 for
    an x of 0 and a positive y. Of an integer x the power is one, too.
    """

    since = 15

    def forward(self, x, y):
        return (x**y).astype(x.dtype) if x.dtype.kind in "iu" else x**y

    def backward(self, grads, inputs, outputs):
        (dz,), (x, y), (z,) = grads, inputs, outputs
        dx = unbroadcast(dz * y * np.where(y == 0, 0, x ** (y - 1)), x.shape)
        if y.dtype.kind in "iu":
            return dx, None
        log = np.log(x)
        slope = np.where((log == -np.inf) & (y > 0), 0, z * log)
        return dx, unbroadcast(dz * slope, y.shape)


@dataclass(frozen=True, kw_only=True, repr=False)
class Mod(Broadcasting):
    """a - b floor(a / b), or with `fmod` the quotient truncated, with broadcasting. ONNX Mod-28.

    So it has the sign of b, or of a; where b is infinite it is a, or b for the other sign. There
    is no gradient of b.
    """

    fmod: int = 0
    since = 28

    def forward(self, a, b):
        if a.dtype.kind in "iuO":
            return a - quotient(a, b) * b if self.fmod else a % b
        y = a - (np.trunc if self.fmod else np.floor)(a / b) * b
        own = self.fmod or np.signbit(a) == np.signbit(b)
        return np.where(np.isinf(b) & np.isfinite(a), np.where(own, a, b), y)

    def backward(self, grads, inputs, outputs):
        (dy,), (a, _) = grads, inputs
        return unbroadcast(dy, a.shape), None


@dataclass(frozen=True, kw_only=True, repr=False)
class Extremum(Broadcasting):
    """The element that is furthest to one side, of one or more inputs that broadcast.

    The gradient goes to the input it was taken from, at a tie to the first of them.
    """

    follows_shifts = True
    further: ClassVar[Formula]
    """The one of two that is further out."""
    beaten: ClassVar[Formula]
    """Whether the second of two is further out than the first."""

    def forward(self, *xs):
        *_, y = accumulate(xs, type(self).further)
        return y if len(xs) > 1 else y.copy()

    def backward(self, grads, inputs, outputs):
        (dy,), (first, *rest) = grads, inputs
        best = [*accumulate(inputs, type(self).further)]
        dxs = []
        for before, x in zip(best[-2::-1], rest[::-1], strict=True):
            wins = type(self).beaten(before, x)
            dxs.append(unbroadcast(dy * wins, x.shape))
            dy = dy * ~wins
        return unbroadcast(dy, first.shape), *reversed(dxs)


@dataclass(frozen=True, kw_only=True, repr=False)
class Max(Extremum):
    """The largest of one or more inputs, element by element. ONNX Max-13."""

    since = 13
    further = staticmethod(np.maximum)
    beaten = staticmethod(np.less)


@dataclass(frozen=True, kw_only=True, repr=False)
class Min(Extremum):
    """The smallest of one or more inputs, element by element. ONNX Min-13."""

    since = 13
    further = staticmethod(np.minimum)
    beaten = staticmethod(np.greater)


@dataclass(frozen=True, kw_only=True, repr=False)
class Sum(Broadcasting):
    """The sum of one or more inputs that broadcast, element by element. ONNX Sum-13."""

    since = 13

    def forward(self, *xs):
        if len(xs) == 2:
            return xs[0] + xs[1]  # of one addition alone it is certain whether it overflows
        shape = np.broadcast_shapes(*(x.shape for x in xs))
        return np.add.accumulate(np.stack([np.broadcast_to(x, shape) for x in xs]))[-1]

    def backward(self, grads, inputs, outputs):
        (dy,) = grads
        return tuple(unbroadcast(dy, x.shape) for x in inputs)


@dataclass(frozen=True, kw_only=True, repr=False)
class Mean(Sum):
    """The mean of one or more inputs that broadcast, element by element. ONNX Mean-13."""

    def forward(self, *xs):
        return super().forward(*xs) / len(xs)

    def backward(self, grads, inputs, outputs):
        (dy,) = grads
        return super().backward((dy / len(inputs),), inputs, outputs)


@dataclass(frozen=True, kw_only=True, repr=False)
class Clip(Broadcasting):
    """y = min(max, max(min, x)): `max` everywhere if `min` is larger. ONNX Clip-13.

    x, y: any shape; min, max: scalars, of which either may be absent. They have no gradient.
    """

    since = 13

    def forward(self, x, low=None, high=None):
        y = x.copy() if low is None else np.maximum(x, low)
        return y if high is None else np.minimum(y, high)

    def backward(self, grads, inputs, outputs):
        (dx,), (x, *bounds) = grads, inputs
        low, high = (*bounds, None, None)[:2]
        if low is not None:
            dx = dx * np.where(x < low, 0, 1)
        if high is not None:
            dx = dx * np.where(x > high, 0, 1)
        return dx, *(None for _ in bounds)
