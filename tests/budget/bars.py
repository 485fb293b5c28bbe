"""The reference with its error bars against the plain reference, in float64, forward + backward.

At the sizes that the suite draws, over the cases of one exploration, and at a medium size. What
cannot be had for less is measured too: a product of two inexact arrays, whose bar by hand.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import given, seed, settings

from d5test.case import Case, Operator, Tensor
from d5test.exploration.draws import PROFILE
from d5test.numerics.arithmetic import classes
from d5test.numerics.bars import Bar
from d5test.numerics.bounds import gradient_bounds
from d5test.reference.operators import OPERATORS
from d5test.strategies import cases
from tests.budget.measure import AGAIN, OURS, THEIRS, Line, clock, in_turn, ratio

BOUND = 6.0
DRAWN = ("Conv", "MatMul", "Softmax", "Gelu", "LayerNormalization", "MaxPool", "ReduceMax", "LSTM",
         "Attention", "SoftmaxCrossEntropyLoss")  # fmt: skip


def lines() -> Iterator[Line]:
    """One for each operator and size."""
    for op, *shapes in _medium():
        case = Case(op, tuple(Tensor(shape, "float64") for shape in shapes))
        size = max(int(np.prod(shape)) for shape in shapes)
        yield line(f"bars of {op!r}, {size} elements / plain reference", [case])
    for name in DRAWN:
        drawn = drawn_cases(OPERATORS[name], 12)
        yield line(f"bars of {name}, sizes as drawn / plain reference", drawn)
    for shape in ((3, 5), (300, 200)):
        yield from product(shape)


def line(what: str, subjects: Sequence[Case]) -> Line:
    """Forward and backward of all of the cases, with bars and without."""
    (arithmetic,) = classes("float64")
    ready = []
    for case in subjects:
        arrays = case.arrays()
        ready.append((case.op, arrays, case.upstream(case.op(*arrays))))

    def with_bars() -> None:
        for op, arrays, grads in ready:
            gradient_bounds(op, arrays, grads, arithmetic)

    def plain() -> None:
        with np.errstate(all="ignore"):
            for op, arrays, grads in ready:
                op.vjp(grads, arrays, op(*arrays))

    arms = {OURS: clock(with_bars), THEIRS: clock(plain), AGAIN: clock(plain)}
    return ratio(what, in_turn(arms, rounds=101, seconds=1.3), BOUND)


def product(shape: tuple[int, ...]) -> Iterator[Line]:
    """One product with its bar, by `Bar` and by the fewest calls of NumPy: for information."""
    (arithmetic,) = classes("float64")
    payment = arithmetic.granted[np.multiply]
    error, eta, ample = payment.error, payment.eta, payment.ample
    random = np.random.default_rng(0)
    x, y, bx, by = (random.standard_normal(shape) for _ in range(4))
    bx, by = np.abs(bx) * error, np.abs(by) * error
    one, two = Bar(x, bx, arithmetic=arithmetic), Bar(y, by, arithmetic=arithmetic)

    def by_hand() -> None:
        size = np.absolute(y)
        own = size * error  # the product's own rounding is |x| |y| error
        own += by
        own *= np.absolute(x)
        size += by
        size *= bx
        own += size
        own += eta
        assert np.vdot(own, own) <= ample
        x * y

    arms = {"by hand": clock(by_hand), OURS: clock(lambda: one * two),
            THEIRS: clock(lambda: x * y), AGAIN: clock(lambda: x * y)}  # fmt: skip
    with np.errstate(all="ignore"):
        times = in_turn(arms, rounds=101, seconds=1.3)
    what = f"a product of two inexact arrays of {x.size} elements"
    yield ratio(f"{what} / without bars", times, None)
    yield ratio(f"{what}, by hand / without bars", {**times, OURS: times["by hand"]}, None)


def drawn_cases(operator: type[Operator], count: int) -> list[Case]:
    """The first cases that an exploration in float64 draws."""
    found: list[Case] = []

    def collect(case: Case) -> None:
        found.append(case)

    run: Callable[[], None] = given(case=cases(operator, "float64"))(collect)
    seed(0)(settings(PROFILE, max_examples=count)(run))()
    return found


def _medium() -> Iterator[tuple[Any, ...]]:
    """Operators, each with the shapes of its inputs: 10^4 to 10^5 elements."""
    op = OPERATORS
    yield op["Conv"](kernel_shape=(3, 3)), (4, 16, 28, 28), (32, 16, 3, 3), (32,)
    yield op["MatMul"](), (192, 160), (160, 224)
    yield op["Softmax"](), (300, 200)
    yield op["Gelu"](), (300, 200)
    yield op["LayerNormalization"](), (300, 200), (200,), (200,)
    yield op["MaxPool"](kernel_shape=(2, 2), strides=(2, 2)), (4, 16, 32, 30)
    yield op["Add"](), (300, 200), (300, 200)
