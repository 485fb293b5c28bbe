"""Bars of derivatives in one direction: of outputs (forward mode), of gradients (second ones).

The reference runs on dual numbers of bars: its `forward` gives J t, how the outputs move with the
inputs, its `backward` how the gradients do, H v. Both have the bars of the chain rule on their own
formula, every subgradient of a kink and every choice at a tie among them.

Frameworks have other formulas. Most transpose: J t by rows of the Jacobian that `backward` gives,
H v by differentiating forward mode again. `by_rows` and `by_forward` are these, for small cases.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from d5test.case import Operator, as_tuple
from d5test.numerics.arithmetic import NEXT_LOWER, Arithmetic
from d5test.numerics.bars import Bar
from d5test.numerics.bounds import (
    Array,
    Bounds,
    as_compared,
    as_stored,
    either,
    exact_bars,
    keep_freed_memory,
    map_floats,
)
from d5test.numerics.dual import Dual, moving
from d5test.numerics.perturbed import rounded
from d5test.numerics.tracked import Tracked

Direction = Sequence[Any]
"""How each input moves, `None` of one that does not."""


def tangent_bounds(
    op: Operator, arrays: Sequence[Any], direction: Direction, arithmetic: Arithmetic
) -> Bounds:
    """How each output of `op` moves; `None` of an output that has no derivative."""
    keep_freed_memory()
    with np.errstate(all="ignore"):
        return _compared(_tangents(op, *_bars(arithmetic, arrays, direction)), arithmetic)


def slope_bounds(
    op: Operator,
    arrays: Sequence[Any],
    grads: Sequence[Any],
    direction: Direction,
    arithmetic: Arithmetic,
) -> Bounds:
    """How the gradient of each input of `op` moves under the upstream gradients `grads`."""
    keep_freed_memory()
    with np.errstate(all="ignore"):
        inputs, moves, upstream = _bars(arithmetic, arrays, direction, grads)
        return _compared(_slopes(op, inputs, upstream, moves), arithmetic)


def by_rows(
    op: Operator, arrays: Sequence[Any], direction: Direction, arithmetic: Arithmetic
) -> Bounds:
    """J t again: the rows of J, each a gradient of one output's element, times t."""
    with np.errstate(all="ignore"):
        return _compared(_rows(op, *_bars(arithmetic, arrays, direction)), arithmetic)


def by_forward(
    op: Operator,
    arrays: Sequence[Any],
    grads: Sequence[Any],
    direction: Direction,
    arithmetic: Arithmetic,
) -> Bounds:
    """H v again, from `forward` alone: how <dy, J e> moves, for each unit direction e."""
    with np.errstate(all="ignore"):
        inputs, moves, upstream = _bars(arithmetic, arrays, direction, grads)
        results: list[Any] = []
        for i, x in enumerate(inputs):
            first = next(j for j, earlier in enumerate(inputs) if earlier is x)
            if moves[i] is None or first != i:
                results.append(None)
                continue
            slopes = np.zeros_like(x.reshape(-1))
            for k in range(slopes.size):
                along: list[Any] = [None] * len(inputs)
                along[i] = Dual(_unit(x, k))
                outer = moving(moving(inputs, moves), along)
                tangents = [y.full_companion() for y in op(*outer) if isinstance(y, Dual)]
                moved = [
                    (dy * t.full_companion()).sum()
                    for dy, t in zip(upstream, tangents, strict=False)
                    if dy is not None and isinstance(t, Dual)
                ]
                slopes[k] = sum(moved[1:], moved[0]) if moved else 0.0
            results.append(slopes.reshape(x.shape))
        return _compared(results, arithmetic)


def by_outputs(
    op: Operator,
    arrays: Sequence[Any],
    grads: Sequence[Any],
    direction: Direction,
    arithmetic: Arithmetic,
) -> Bounds:
    """H v again, the outputs that `backward` reads moving as it says itself: by rows of J."""
    with np.errstate(all="ignore"):
        inputs, moves, upstream = _bars(arithmetic, arrays, direction, grads)
        moved = _rows(op, inputs, moves)
        return _compared(_slopes(op, inputs, upstream, moves, moved), arithmetic)


def by_others(
    op: Operator,
    arrays: Sequence[Any],
    grads: Sequence[Any],
    direction: Direction,
    arithmetic: Arithmetic,
) -> list[Bounds]:
    """H v again, by each other formula of the gradient."""
    with np.errstate(all="ignore"):
        inputs, moves, upstream = _bars(arithmetic, arrays, direction, grads)
        others = op.other_slopes(*_of_slopes(inputs, upstream, moves))
        return [_compared(_all_moved(gradients, inputs), arithmetic) for gradients in others]


def by_other_formulas(
    op: Operator,
    arrays: Sequence[Any],
    grads: Sequence[Any],
    direction: Direction,
    arithmetic: Arithmetic,
) -> Iterator[Bounds]:
    """H v again, by each other way that frameworks have; those that take long come last."""
    data = op, arrays, grads, direction, arithmetic
    yield from by_others(*data)
    yield by_outputs(*data)
    yield by_forward(*data)


def widened(bounds: Bounds, others: Bounds) -> Bounds:
    """The bars so wide that they hold what another formula may give."""
    pairs = zip(bounds, others, strict=True)
    return tuple(one if other is None else either(one, other) for one, other in pairs)


def lower_tangents(
    op: Operator, arrays: Sequence[Any], direction: Direction, dtype: str
) -> tuple[Array | None, ...]:
    """How the outputs move, as computed in the next lower precision."""
    with np.errstate(all="ignore"):
        return _plain(_tangents(op, *_lowered(dtype, arrays, direction)))


def lower_slopes(
    op: Operator, arrays: Sequence[Any], grads: Sequence[Any], direction: Direction, dtype: str
) -> tuple[Array | None, ...]:
    """How the gradients move, as computed in the next lower precision."""
    with np.errstate(all="ignore"):
        inputs, moves, upstream = _lowered(dtype, arrays, direction, grads)
        return _plain(_slopes(op, inputs, upstream, moves))


def _tangents(op: Operator, inputs: Sequence[Any], direction: Direction) -> tuple[Any, ...]:
    """How each output moves; `None` where it has no derivative."""
    outputs = as_tuple(op.linearised(*moving(inputs, direction)))
    return tuple(
        None if k in op.stopped_outputs or y.dtype.kind != "f" else _moved(y, inputs)
        for k, y in enumerate(outputs)
    )


def _rows(op: Operator, inputs: tuple[Any, ...], direction: Direction) -> list[Any]:
    """How each output moves, by the gradients of its elements; `None` where there are none."""
    outputs = tuple(_stored(y) for y in op(*inputs))
    results: list[Any] = []
    for k, y in enumerate(outputs):
        if k in op.stopped_outputs or y.dtype.kind != "f":
            results.append(None)
            continue
        row = np.zeros_like(y.reshape(-1))
        for i in range(row.size):
            upstream: list[Any] = [None] * len(outputs)
            upstream[k] = _unit(y, i)
            row[i] = _along(op.vjp(tuple(upstream), inputs, outputs), inputs, direction)
        results.append(row.reshape(y.shape))
    return results


def _unit(like: Any, i: int) -> Any:
    """1 at the flat index i, 0 elsewhere."""
    unit = np.zeros(like.size)
    unit[i] = 1.0
    return like.like(unit.reshape(like.shape))


def _slopes(
    op: Operator,
    inputs: Sequence[Any],
    grads: Sequence[Any],
    direction: Direction,
    moved: Sequence[Any] = (),
) -> tuple[Any, ...]:
    """How each gradient moves. The backward pass sees outputs, and how they move, as stored.

    `moved` says how the outputs do, by a formula of its own.
    """
    upstream, duals = _of_slopes(inputs, grads, direction)
    outputs = op(*duals)
    if moved:
        pairs = zip(outputs, moved, strict=True)
        outputs = tuple(y if t is None else Dual(y.value, t) for y, t in pairs)
    outputs = tuple(map(_stored, outputs))
    return _all_moved(op.vjp(upstream, duals, outputs), inputs)


def _of_slopes(
    inputs: Sequence[Any], grads: Sequence[Any], direction: Direction
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Upstream gradients, which do not move, and inputs, which do, as `backward` takes them."""
    upstream = tuple(dy if dy is None else Dual(dy) for dy in grads)
    return upstream, moving(inputs, direction)


def _all_moved(results: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(None if y is None else _moved(y, inputs) for y in results)


def _stored(y: Any) -> Any:
    """An output of the forward pass as the backward pass finds it again, and how it moves."""
    if isinstance(y, Dual):
        return Dual(_stored(y.value), _stored(y.companion))
    return as_stored(y, y.arithmetic) if isinstance(y, Bar) else y


def _moved(y: Any, inputs: Sequence[Any]) -> Any:
    """The derivative, of the same kind as the inputs."""
    if isinstance(y, Dual) and y.companion is not None:
        return y.companion
    kind = next(x for x in inputs if isinstance(x, Tracked))
    return kind.like(np.zeros(y.shape))


def _along(gradients: Sequence[Any], inputs: Sequence[Any], direction: Direction) -> Any:
    """<g, t>, over all inputs that move. What is exactly zero in g adds no rounding."""
    moves = {id(x): t for x, t in zip(inputs, direction, strict=True) if t is not None}
    products = []
    for g, x in zip(gradients, inputs, strict=True):
        if g is not None and id(x) in moves:
            flows = (g.value != 0) | (g.full_companion() != 0)
            products.append((g[flows] * moves[id(x)][flows]).sum())
    return sum(products[1:], products[0]) if products else 0.0


def _bars(arithmetic: Arithmetic, *arrays: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Exact arrays with bars, at whose ties every choice is right."""
    return [exact_bars(each, arithmetic.tied) for each in arrays]


def _lowered(dtype: str, *arrays: Sequence[Any]) -> list[tuple[Any, ...]]:
    def lift(x: Array) -> Any:
        return rounded(x.astype(np.float64), NEXT_LOWER[dtype])

    return [map_floats(each, lift) for each in arrays]


def _compared(results: Sequence[Any], arithmetic: Arithmetic) -> Bounds:
    return tuple(None if y is None else as_compared(y, arithmetic) for y in results)


def _plain(results: Sequence[Any]) -> tuple[Array | None, ...]:
    return tuple(y.value if isinstance(y, Tracked) else y for y in results)
