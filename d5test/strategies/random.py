"""Cases of tensors that are drawn by chance: of many elements, so that a wrong share shows."""

from functools import partial
from math import prod

from hypothesis.strategies import SearchStrategy

from d5test.case import Case, Operator, Tensor
from d5test.dtypes import NUMBERS
from d5test.reference.operators import random
from d5test.strategies.draw import Draw, Shape
from d5test.strategies.registry import choices, drawn_by, inputs

MANY = 50_000
"""Elements among which a share that is 1.5 % of all off shows."""
SEEDS = (None, 1.0, 0.0, 271.0, 65537.0)
"""Whole ones, which every framework takes."""


def sampled(d: Draw) -> Shape:
    """A shape of many elements, long along one of its axes; or a small one, and none."""
    if d.degenerate or d.choose((False, False, False, True)):
        return d.shape(0, 4)
    sides = d.shape(0, 3, empty=False)
    long = -(-MANY // max(1, prod(sides)))
    at = d.integer(0, len(sides))
    return (*sides[:at], long, *sides[at:])


def dtype_like(d: Draw) -> int | None:
    """That of the input, or another one."""
    return d.choose((None, NUMBERS[d.dtype], NUMBERS["float32"], NUMBERS["float16"]))


normal = {"seed": SEEDS, "mean": (0.0, 1.0, -2.5, 100.0), "scale": (1.0, 2.0, 0.125, 30.0)}
uniform = {"seed": SEEDS, "low": (0.0, -1.0, -3.5, 0.5), "high": (1.0, 2.0, 96.0)}
made = {"shape": sampled, "dtype": lambda d: NUMBERS[d.dtype]}
choices(random.RandomNormal, **made, **normal)
choices(random.RandomUniform, **made, **uniform)
choices(random.RandomNormalLike, dtype=dtype_like, **normal)
choices(random.RandomUniformLike, dtype=dtype_like, **uniform)
choices(
    random.Bernoulli,
    seed=SEEDS,
    dtype=lambda d: d.choose((None, *map(NUMBERS.get, (d.dtype, "bool", "int64", "uint8")))),
)
choices(
    random.Multinomial,
    seed=SEEDS,
    dtype=(NUMBERS["int32"], NUMBERS["int64"]),
    sample_size=(MANY // 4, 1, 777),
)


@inputs(random.RandomNormal, random.RandomUniform)
def no_inputs(d: Draw, op: random.Random) -> tuple[Tensor, ...]:
    """None: the shape is an attribute."""
    return ()


@inputs(random.RandomNormalLike, random.RandomUniformLike)
def like_inputs(d: Draw, op: random.Random) -> tuple[Tensor]:
    """Of the dtype under test; of whole numbers where the result is of it anyway."""
    x = d.tensor(sampled(d))
    whole = Tensor(x.shape, "int32", ("below", 9))
    return (d.choose((x, whole)) if op.dtype == NUMBERS[d.dtype] else x,)


@inputs(random.Bernoulli)
def probabilities(d: Draw, op: random.Bernoulli) -> tuple[Tensor]:
    """One for all elements, 0 and 1 among them, or one for each."""
    return (
        d.tensor(
            sampled(d),
            ("uniform", 0, 1), ("constant", 0.5), ("constant", 0.0625), ("constant", 0.0),
            ("constant", 1.0), ("mask", 0.5),
        ),
    )  # fmt: skip


@inputs(random.Multinomial)
def log_probabilities(d: Draw, op: random.Multinomial) -> tuple[Tensor]:
    """Few classes, far apart and equal; or one class, and one that cannot be."""
    if d.choose((False, False, False, True)):
        return (d.literal((0.0, -1.5, float("-inf"), 0.5), d.dtype, (1, 4)),)
    return (d.tensor((d.side(most=4), d.side(most=6)), ("uniform", -3, 3), ("constant", 0.0)),)


def in_training(operator: type[Operator], dtype: str) -> SearchStrategy[Case]:
    """Cases of a Dropout that draws its mask, on an x that has no zeros."""
    return drawn_by(partial(_trained, operator), dtype)


def _trained(operator: type[Operator], d: Draw) -> Case:
    x = d.tensor(sampled(d), ("uniform", 1, 2))
    ratio = d.maybe(d.literal(d.choose((0.25, 0.1, 0.75, 0.0)), d.dtype))
    return Case(operator(), (x, ratio, d.literal(True, "bool")), d.integer(0, 2**32 - 1))
