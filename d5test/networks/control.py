"""Control flow: which body runs, how often, and on what. It rounds nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from d5test.case import dtype_of
from d5test.networks.call import ITERATIONS, Call, Rule, held


def _if(call: Call, condition: Any) -> list[Any]:
    return call.bodies["then_branch" if call.number(condition) else "else_branch"]()


def _loop(call: Call, trips: Any = None, condition: Any = None, *carried: Any) -> list[Any]:
    """ONNX Loop-25: the body takes iteration, condition and what is carried, and gives the last
    two and one element of each scan output.
    """
    limit = ITERATIONS + 1 if trips is None else call.number(trips)
    goes_on = True if condition is None else bool(call.number(condition))
    states, columns, collected, i = list(carried), list[list[Any]](), 0, 0
    while goes_on and i < limit:
        call.budget.spend(call.node, held(states) + collected)
        going, *results = call.bodies["body"](np.array(i), np.array(goes_on), *states) or [None]
        call.require(len(results) >= len(states), "its body makes too few outputs")
        states, elements = results[: len(carried)], results[len(carried) :]
        columns = columns or [[] for _ in elements]
        for column, element in zip(columns, elements, strict=True):
            column.append(element)
        collected += held(elements)
        goes_on, i = bool(call.number(going)), i + 1
    names = call.body.outputs[1 + len(carried) :]
    columns = columns or [[] for _ in names]
    return [*states, *(_stacked(call, *both) for both in zip(columns, names, strict=True))]


def _stacked(call: Call, column: Sequence[Any], output: str) -> Any:
    """What a loop collects of an output of its body, along a new axis in front.

    Of one that never runs it is what the body declares; a side that it does not declare is 0.
    """
    if column:
        alike = all(np.shape(x) == np.shape(column[0]) and not isinstance(x, list) for x in column)
        call.require(alike, "collects tensors of different shapes")
        return np.stack(column)
    said = call.body.declared.get(output)
    call.require(said is not None and bool(said.dtype), f"declares no type of {output!r}")
    assert said is not None
    shape = (side if isinstance(side, int) else 0 for side in said.shape)
    return np.empty((0, *shape), dtype_of(said.dtype))


def _scan(call: Call, *inputs: Any) -> list[Any]:
    """ONNX Scan-25; of version 8 with a batch, and perhaps lengths, in front."""
    if call.op.version < 9:
        return _batched_scan(call, *inputs)
    m = call.attribute("num_scan_inputs")
    call.require(0 < m <= len(inputs), f"has {m} scan inputs")
    count = len(call.node.outputs) - (len(inputs) - m)
    call.require(count >= 0, "has fewer outputs than states")
    return _scanned(
        call, list(inputs[:-m]), list(inputs[-m:]),
        [call.attribute(f"scan_{what}", [0] * n)
         for what, n in (("input_axes", m), ("input_directions", m),
                         ("output_axes", count), ("output_directions", count))],
    )  # fmt: skip


def _scanned(
    call: Call, states: list[Any], scanned: list[Any], layout: Sequence[Sequence[int]]
) -> list[Any]:
    """The states after the last element of what is scanned, and what was made at each.

    `layout` has the axes and directions (1: backwards) of the inputs, then of the outputs.
    """
    axes, directions, out_axes, out_directions = layout
    names = call.body.outputs[len(states) :]
    call.require(len(axes) == len(directions) == len(scanned), "has axes for other scan inputs")
    call.require(
        len(out_axes) == len(out_directions) == len(names), "has axes for other scan outputs"
    )
    call.require(
        all(-np.ndim(x) <= axis < np.ndim(x) for x, axis in zip(scanned, axes, strict=True)),
        "scans along an axis that is not there",
    )
    fronts = [np.moveaxis(x, axis, 0) for x, axis in zip(scanned, axes, strict=True)]
    length = fronts[0].shape[0]
    call.require(all(x.shape[0] == length for x in fronts), "scans inputs of different lengths")
    count, columns, collected = len(states), [list[Any]() for _ in out_axes], 0
    for i in range(length):
        call.budget.spend(call.node, held(states) + collected)
        elements = [x[-1 - i if back else i, ...]
                    for x, back in zip(fronts, directions, strict=True)]  # fmt: skip
        results = call.bodies["body"](*states, *elements)
        call.require(
            len(results) == count + len(columns), f"its body makes {len(results)} outputs"
        )
        states = results[:count]
        for column, element in zip(columns, results[count:], strict=True):
            column.append(element)
        collected += held(results[count:])
    stacked = []
    for column, axis, back, name in zip(columns, out_axes, out_directions, names, strict=True):
        whole = _stacked(call, column[:: -1 if back else 1], name)
        call.require(-whole.ndim <= axis < whole.ndim, f"has no axis {axis} of its output")
        stacked.append(np.moveaxis(whole, 0, axis))
    return [*states, *stacked]


def _batched_scan(call: Call, lengths: Any, *inputs: Any) -> list[Any]:
    """ONNX Scan-8: axis 0 is the batch, axis 1 the sequence; behind its end outputs are zero."""
    m = call.attribute("num_scan_inputs")
    call.require(0 < m <= len(inputs), f"has {m} scan inputs")
    call.require(all(np.ndim(x) > 1 for x in inputs[-m:]), "scans inputs without a sequence")
    batch, longest = inputs[-1].shape[:2]
    call.require(all(x.shape[:1] == (batch,) for x in inputs), "has inputs of different batches")
    lengths = np.full(batch, longest) if lengths is None else lengths
    call.require(lengths.shape == (batch,), f"has lengths of the shape {lengths.shape}")
    call.require(batch > 0 and all(0 <= n <= longest for n in lengths), "has lengths out of range")
    states = len(inputs) - m
    zeros = [0] * (len(call.node.outputs) - states)
    layout = [0] * m, call.attribute("directions", [0] * m), zeros, zeros
    samples = [
        _scanned(call, [x[b] for x in inputs[:-m]], [x[b, :n] for x in inputs[-m:]], layout)
        for b, n in enumerate(lengths)
    ]
    for sample in samples:
        for k, y in enumerate(sample[states:], states):
            sample[k] = np.pad(y, [(0, longest - len(y)), *[(0, 0)] * (y.ndim - 1)])
    return [np.stack(column) for column in zip(*samples, strict=True)]


def _sequence_map(call: Call, first: Any, *others: Any) -> list[Any]:
    """ONNX SequenceMap-17: the body of each element, and of tensors as they are."""
    first, results, collected = call.sequence(first), list[list[Any]](), 0
    alike = all(len(x) == len(first) for x in others if isinstance(x, list))
    call.require(alike, "is given sequences of different lengths")
    for i in range(len(first)):
        call.budget.spend(call.node, collected)
        given = [x[i] if isinstance(x, list) else x for x in (first, *others)]
        results.append(call.bodies["body"](*given))
        collected += held(results[-1])
    columns = zip(*results, strict=True) if results else [() for _ in call.node.outputs]
    return [list(column) for column in columns]


CONTROL: Mapping[str, Rule] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceMap": _sequence_map,
}
