"""Sequences, which are lists of arrays, and optionals, which are their element or None.

Nothing is computed: arrays are put into lists, taken out, split and joined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from d5test.networks.call import Call, Rule
from d5test.networks.graph import BrokenGraph


def _position(call: Call, x: Any, count: int) -> int:
    """A position in a sequence; a negative one counts from its end."""
    i = call.number(x)
    call.require(-count <= i < count, f"has no position {i} among {count}")
    return i


def _at(call: Call, sequence: Any, position: Any) -> list[Any]:
    return [sequence[_position(call, position, len(call.sequence(sequence)))]]


def _erase(call: Call, sequence: Any, position: Any = None) -> list[Any]:
    rest = list(call.sequence(sequence))
    at = -1 if position is None else _position(call, position, len(rest))
    call.require(bool(rest), "erases of an empty sequence")
    del rest[at]
    return [rest]


def _insert(call: Call, sequence: Any, x: Any, position: Any = None) -> list[Any]:
    """ONNX SequenceInsert-11: before the element at a position; n is the end."""
    n = len(call.sequence(sequence))
    at = n if position is None else call.number(position)
    call.require(-n <= at <= n, f"has no position {at} to insert among {n}")
    return [[*sequence[:at], x, *sequence[at:]]]


def _split(call: Call, x: Any, split: Any = None) -> list[Any]:
    """ONNX SplitToSequence-24: into parts of a length, of these lengths, or one by one."""
    axis = call.attribute("axis", 0)
    call.require(-x.ndim <= axis < x.ndim, f"has no axis {axis}")
    side = x.shape[axis]
    if split is None:
        lengths = [1] * side
    elif split.ndim == 0:
        size = call.number(split)
        call.require(size > 0, f"splits into parts of {size}")
        lengths = [min(size, side - i) for i in range(0, side, size)]
    else:
        lengths = split.tolist()
        call.require(sum(lengths) == side and min(lengths, default=0) >= 0,
                     f"splits {side} into {lengths}")  # fmt: skip
    ends = np.cumsum(lengths, dtype=int).tolist()
    front = np.moveaxis(x, axis, 0)
    pieces = [front[end - n : end] for end, n in zip(ends, lengths, strict=True)]
    if split is None and not call.attribute("keepdims", 1):
        return [[piece[0] for piece in pieces]]
    return [[np.moveaxis(piece, 0, axis) for piece in pieces]]


def _concat(call: Call, sequence: Any) -> list[Any]:
    """ONNX ConcatFromSequence-11: along an axis that is there, or a new one."""
    join = np.stack if call.attribute("new_axis", 0) else np.concatenate
    call.require(bool(call.sequence(sequence)), "joins an empty sequence")
    try:
        return [join(sequence, axis=call.attribute("axis"))]
    except ValueError as error:  # shapes that do not fit, an axis that is not there
        raise BrokenGraph(f"cannot join a sequence: {error}", call.node.name) from None


def _get(call: Call, x: Any = None) -> list[Any]:
    call.require(x is not None, "gets the element of an optional that has none")
    return [x]


SEQUENCES: Mapping[str, Rule] = {
    "SequenceConstruct": lambda call, *xs: [list(xs)],
    "SequenceEmpty": lambda call: [[]],
    "SequenceAt": _at,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": lambda call, xs: [np.array(len(call.sequence(xs)))],
    "SplitToSequence": _split,
    "ConcatFromSequence": _concat,
    "Optional": lambda call, x=None: [x],
    "OptionalHasElement": lambda call, x=None: [np.array(x is not None)],
    "OptionalGetElement": _get,
}
