"""Calls beyond 2^31 bytes or elements: samples that are repeated get what they get alone.

The large tensors are made beside the framework, of a case of the corpus. Of each element of the
small result the lowest and highest of all its repetitions come back, and both have to lie within
its bar: so all elements of the large result are judged.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array, Arrays, Batch, Case, Operator, dtype_of
from d5test.checks.check import Inquiry, Why, supported
from d5test.checks.memory import require
from d5test.checks.value import forward
from d5test.client.messages import BackendInfo, Crashed, Extremes, Hung, Raised
from d5test.numerics.bounds import Bounds, double
from d5test.numerics.judgement import Judgement, tightest
from d5test.outcome.fault import NO_CALLS, Fault
from d5test.outcome.tally import Inapplicable
from d5test.problems.corpus import corpus

LARGE = 1 << 31
"""What 32 bits with a sign do not count any more."""
ROOM = 0.85
"""The share of the memory that may be taken."""
COPIES = 2
"""Of each input and output: the framework's and NumPy's."""
PATIENCE = 300.0
"""Seconds for whatever a call does beside its multiplications."""
SLOWEST = 10**8
"""Multiplications a second that a framework does at least."""
MOST = 10**12
"""Multiplications of a large call."""
REFUSED = re.compile(r"memory|alloc|resource.?exhausted|\boom\b", re.IGNORECASE)
"""What frameworks say where memory does not suffice."""
ABSURD = re.compile(r"\d{16,}")
"""Bytes that nothing needs: a size that has overflowed."""


@dataclass(frozen=True)
class Large:
    """A small case, and how often its samples are repeated along which axes."""

    case: Case
    along: Batch
    times: int

    @property
    def work(self) -> tuple[int, int]:
        """Multiplications, and then how many samples there are."""
        return self.multiplications, self.times

    @property
    def multiplications(self) -> int:
        """Scalar multiplications of the large call."""
        return self.times * (self.case.op.multiplications(*self.case.shapes) or 0)


def has_samples(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `supported`, and a case of the corpus has samples that can be repeated."""
    if not large_cases(operator, dtype):
        return Inapplicable("no case of the corpus has samples that do not depend on each other")
    return supported(operator, about, dtype)


def large_cases(operator: type[Operator], dtype: str) -> tuple[Case, ...]:
    """The case of the corpus that is repeated: the one of the least work for its size."""
    return _least().get((operator, dtype), ())


@cache
def _least() -> Mapping[tuple[type[Operator], str], tuple[Case, ...]]:
    """By operator and dtype."""
    found: dict[Any, Large] = {}
    for problem in corpus().problems:
        large, key = repeated(problem.case, LARGE), (type(problem.case.op), problem.case.dtype)
        if large and (key not in found or large.work < found[key].work):
            found[key] = large
    return {key: (large.case,) for key, large in found.items()}


def repeated(case: Case, elements: int) -> Large | None:
    """The case repeated until an input or output has more than so many elements."""
    arrays = case.arrays()
    outputs = case.op(*double(arrays))
    along = next(_independent(case, arrays, outputs), None)
    if along is None:
        return None
    tensors = (*zip(arrays, along.inputs, strict=True), *zip(outputs, along.outputs, strict=True))
    most = max(np.size(x) for x, axis in tensors if axis is not None)
    return Large(case, along, elements // most + 1) if most else None


def _independent(case: Case, arrays: Arrays, outputs: tuple[Any, ...]) -> Iterator[Batch]:
    """Axes along which the reference says that repeating the inputs repeats the outputs."""
    rank = 0 if arrays[0] is None else arrays[0].ndim
    for axes in dict.fromkeys(_candidates(case, arrays, rank)):
        try:
            with np.errstate(all="ignore"):
                tiled = [_tiled(x, axis, 3) for x, axis in zip(arrays, axes, strict=True)]
                many = case.op(*double(tiled))
        except Exception:  # noqa: BLE001 (the reference refuses what is no valid input)
            continue
        if len(many) == len(outputs):  # Split may make more pieces
            found = tuple(_along(y, large) for y, large in zip(outputs, many, strict=True))
            if found[0] is not None:
                yield Batch(axes, found)


def _candidates(case: Case, arrays: Arrays, rank: int) -> Iterator[tuple[int | None, ...]]:
    """For each input the axis along which it may be repeated."""
    batch = case.op.batch(*case.shapes)
    if batch is not None:
        yield (*batch.inputs, *(None for _ in arrays))[: len(arrays)]
    for axis in range(rank):
        first = arrays[0]
        assert first is not None
        size = first.shape[axis]
        yield (axis, *(None for _ in arrays[1:]))
        for same_rank in (True, False):
            yield tuple(
                axis
                if x is not None
                and x.ndim > axis
                and (x.ndim == rank if same_rank else x.shape[axis] == size)
                else None
                for x in arrays
            )


def _tiled(x: Array | None, axis: int | None, times: int) -> Array | None:
    """An array so often, one behind the other along an axis."""
    return x if x is None or axis is None else np.concatenate([x] * times, axis)


def _along(y: Array, large: Array) -> int | None:
    """The axis along which a result is another one three times; nothing if there is none."""
    for axis in range(y.ndim):
        wanted = np.concatenate([y] * 3, axis)
        alike = wanted.shape == large.shape
        # sums may be taken in another order
        if alike and np.allclose(wanted, large, rtol=1e-9, atol=1e-12, equal_nan=True):
            return axis
    return None


def large_bytes(client: Any, case: Case) -> Judgement:
    """With more than 2^31 bytes in an input or output, samples get what they get alone."""
    return _judged("large_bytes", client, case, LARGE // dtype_of(case.dtype).itemsize)


def large_elements(client: Any, case: Case) -> Judgement:
    """With more than 2^31 elements in an input or output, samples get what they get alone."""
    return _judged("large_elements", client, case, LARGE)


def _judged(check: str, client: Any, case: Case, elements: int) -> Judgement:
    large = repeated(case, elements)
    if large is None:
        raise Inapplicable("the samples of this case depend on each other")
    if large.multiplications > MOST:
        raise Unsupported(f"{large.multiplications:.1g} multiplications would take hours")
    small = forward(client, case)
    inquiry = Inquiry(check, client, case)
    outputs = _called(inquiry, large, None)
    if not inquiry.has_gradient or not _wanted(inquiry, large):
        return outputs if outputs.ratio > small.ratio else small
    try:
        gradients = _called(inquiry, large, inquiry.upstream)
    except Unsupported:
        return outputs  # the forward alone did fit
    return max(outputs, gradients, key=lambda j: (j.arithmetic, j.ratio))


def _wanted(inquiry: Inquiry, large: Large) -> tuple[int, ...]:
    """The inputs whose gradients are judged: those that the samples do not share."""
    return tuple(i for i in inquiry.wanted if large.along.inputs[i] is not None)


def _called(inquiry: Inquiry, large: Large, grads: Arrays | None) -> Judgement:
    """The judgement of the large call's outputs, or with `grads` of its gradients."""
    case, along, times = inquiry.case, large.along, large.times
    count = inquiry.row.outputs or len(along.outputs)
    axes = Batch(along.inputs, along.outputs[:count])
    _require_memory(inquiry, large, grads)
    seconds = PATIENCE + large.multiplications / SLOWEST
    feed = inquiry.feed(grads=grads)
    try:
        with inquiry.client.answering_within(seconds):
            outputs, gradients = inquiry.client.repeat(
                case.op, feed, (axes.inputs, axes.outputs), times,
                wanted=_wanted(inquiry, large), form=case.form,
            )  # fmt: skip
    except Crashed as crash:
        if "SIGKILL" in crash.how:
            raise Unsupported(f"{case.op.name} was killed: too large for this machine") from None
        raise _fault(inquiry, large, "crash", "the process died", how=str(crash)) from None
    except Hung as hang:
        raise _fault(inquiry, large, "hang", "no answer", how=str(hang)) from None
    except Raised as raised:
        if REFUSED.search(raised.message) and not ABSURD.search(raised.message):
            line = raised.message.partition("\n")[0]
            raise Unsupported(f"{case.op.name} found too little memory: {line}") from None
        what = "valid inputs raise an exception"
        raise _fault(inquiry, large, "exception", what, raised=str(raised)) from None
    if grads is None:
        return _extremes_judged(inquiry, large, outputs, axes.outputs, None)
    return _extremes_judged(inquiry, large, gradients, axes.inputs, grads)


def _extremes_judged(
    inquiry: Inquiry,
    large: Large,
    results: Sequence[Extremes | None],
    axes: Sequence[int | None],
    grads: Arrays | None,
) -> Judgement:
    """The worse judgement of the lowest and the highest; of gradients where there are some."""
    what, kind = ("result", "value") if grads is None else ("gradient", "gradient")
    told = [None if axis is None else got for got, axis in zip(results, axes, strict=False)]

    def bounds(arithmetic: Any) -> Bounds:
        if grads is None:
            return inquiry.forward_bounds(arithmetic)
        wanted = iter(inquiry.gradient_bounds(arithmetic, grads))
        return tuple(next(wanted) if i in inquiry.wanted else None for i in range(len(told)))

    attempts = inquiry.attempts()
    for k, (bound, got) in enumerate(zip(bounds(attempts[0]), told, strict=False)):
        if bound is not None and got is not None:
            want = list(bound.value.shape)
            axis = axes[k]
            assert axis is not None
            want[axis] *= large.times
            if got.shape != tuple(want):
                wrong = f"{what} {k} has the wrong shape"
                raise _fault(
                    inquiry, large, "shape", wrong, got=str(got.shape), want=str(tuple(want))
                )
    worst = Judgement(telling=True)
    for which in ("lowest", "highest"):
        values = [None if got is None else getattr(got, which) for got in told]
        judgement, _ = tightest(attempts, bounds, values)
        if not judgement.right:
            wrong = f"the {what} is wrong in some of {large.times} repetitions"
            raise _fault(inquiry, large, kind, wrong, judgement)
        if judgement.arithmetic > inquiry.allowed.name:
            wrong = f"the {what} is outside class {inquiry.allowed.name}"
            raise _fault(inquiry, large, "arithmetic", wrong, judgement)
        worst = max(worst, judgement, key=lambda j: j.ratio)
    return worst


def _require_memory(inquiry: Inquiry, large: Large, grads: Arrays | None) -> None:
    """Raise `Unsupported` where the large tensors do not fit into memory."""
    case, along = large.case, large.along
    inputs = sum(np.size(x) for x, axis in zip(inquiry.arrays, along.inputs, strict=True)
                 if axis is not None and x is not None)  # fmt: skip
    outputs = sum(prod(b.value.shape) for b in inquiry.forward_bounds(inquiry.allowed) if b)
    passes = 1 if grads is None else 2
    needed = COPIES * passes * large.times * (inputs + outputs) * dtype_of(case.dtype).itemsize
    times = f" repeated {large.times} times"
    require(needed, ROOM, case, f"'s gradient{times}" if grads is not None else times)


def _fault(
    inquiry: Inquiry, large: Large, kind: str, what: str, judgement: Judgement | None = None,
    **details: str,
) -> Fault:  # fmt: skip
    """A fault of the large call, which no short call shows."""
    case, backend = inquiry.case, inquiry.client.name
    axes = ", ".join("none" if axis is None else str(axis) for axis in large.along.inputs)
    details["large"] = f"the inputs {large.times} times along their axes {axes}"
    details["again"] = (
        f"pytest suites/operators --sizes=large --backend={backend} --operator={case.op.name} "
        f"--check={inquiry.subject.check} --dtype={case.dtype}"
    )
    return inquiry.subject.fault(kind, what, NO_CALLS, judgement, **details)
