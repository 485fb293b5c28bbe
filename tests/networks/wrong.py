"""Backends whose networks are wrong on purpose, each in one place."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from d5test.backends.base import Row
from d5test.backends.numpy import Numpy, Tape, Traced, rounded


class Scaled:
    """A reference whose gradient by its second input is 1.001 times what it should be, where that
    input has the shape `shape`: one node of a network, say."""

    def __init__(self, row: Any, shape: tuple[int, ...]) -> None:
        self._row, self._shape = row, shape

    def __call__(self, op: Any, *inputs: Any) -> Any:
        w = inputs[1]
        if isinstance(w, Traced) and w.array.shape == self._shape:
            result = self._row(op, *inputs)
            call = w.tape.calls[-1]
            w.tape.calls[-1] = call._replace(operator=Wrongly(call.operator))
            return result
        return self._row(op, *inputs)


class Wrongly:
    """An operator with a wrong gradient by its second input."""

    differentiable = True
    typed = False

    def __init__(self, operator: Any) -> None:
        self._operator = operator

    def vjp(self, *given: Any) -> tuple[Any, ...]:
        dx, dw, *rest = self._operator.vjp(*given)
        return dx, dw * np.float32(1.001), *rest


def with_row(name: str, call: Callable[..., Any]) -> Mapping[str, Row]:
    return {**Numpy.rows, name: replace(Numpy.rows[name], call=call)}


class OneBackward(Numpy):
    """The gradient of one convolution's weights is wrong: the one with 32 maps of 16."""

    rows: ClassVar[Mapping[str, Row]] = with_row(
        "Conv", Scaled(Numpy.rows["Conv"].call, (32, 16, 3, 3))
    )


def other_epsilon(op: Any, *inputs: Any) -> Any:
    changed = type("Changed", (), {"attributes": {**op.attributes, "epsilon": 1.3e-5}})
    return Numpy.rows["LayerNormalization"].call(changed, *inputs)


class OtherEpsilon(Numpy):
    """Layer normalisation with an epsilon of 1.3e-5 for 1e-5."""

    rows: ClassVar[Mapping[str, Row]] = with_row("LayerNormalization", other_epsilon)


class LostReader(Numpy):
    """Of a tensor that several nodes read, only the first gradient arrives: no node is wrong."""

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        tape = Forgetful()
        leaves = [None if x is None else Traced(x, tape) for x in inputs]
        result = function(*leaves)
        results = result if isinstance(result, tuple) else (result,)
        totals = tape.pull(results, grads)
        outputs = tuple(y.array for y in results)
        return outputs, [totals.get(id(leaves[i])) for i in wanted]


class Forgetful(Tape):
    """Sums no gradients."""

    def pull(self, outputs: Sequence[Traced], grads: Sequence[Any]) -> dict[int, Any]:
        totals = {id(y): dy for y, dy in zip(outputs, grads, strict=False) if dy is not None}
        for call in reversed(self.calls):
            dys = [totals.get(id(y)) for y in call.outputs]
            if any(dy is not None for dy in dys):
                for x, dx in zip(call.inputs, self.pulled(call, dys), strict=True):
                    if x is not None and dx is not None:
                        totals.setdefault(id(x), rounded(dx, call.arrays))
        return totals


class Stopped:
    """A conversion through which no gradient flows."""

    def __init__(self, row: Any) -> None:
        self._row = row

    def __call__(self, op: Any, x: Any, *like: Any) -> Any:
        arrays = (getattr(a, "array", a) for a in (x, *like))
        (y,) = self._row(op, *arrays)
        return Traced(y, x.tape) if isinstance(x, Traced) else y


class StoppedCast(Numpy):
    """Cast has no gradient."""

    rows: ClassVar[Mapping[str, Row]] = with_row("Cast", Stopped(Numpy.rows["Cast"].call))


def cut_upwards(op: Any, x: Any) -> Any:
    array = getattr(x, "array", x)
    return Numpy.rows["Cast"].call(op, array + np.float32(0.5))


class RoundedCast(Numpy):
    """What is cut to whole numbers is rounded."""

    rows: ClassVar[Mapping[str, Row]] = with_row("Cast", cut_upwards)


def beyond_four(op: Any, x: Any, y: Any) -> Any:
    (z,) = Numpy.rows["Add"].call(op, x, y)
    return z + np.float32(1e-3) * (np.max(z) > 4)


class LargeSums(Numpy):
    """Sums beyond 4 are wrong."""

    rows: ClassVar[Mapping[str, Row]] = with_row("Add", beyond_four)
