"""Calls beyond 2^31 bytes or elements: samples that are repeated get what they get alone.

A case of the corpus is repeated beside the framework, so that large tensors do not travel. Of each
element of the small result the lowest and highest of all its repetitions come back, and both have
to lie within its bar: so all elements of the large result are judged.

An offset that overflows is wrong by a power of two. A sample whose size is not a power of two
is out of step then, and what is read shows that it comes from another place.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from math import prod
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array, Arrays, Batch, Case, Operator, dtype_of
from d5test.checks.check import Why, supported, with_gradient
from d5test.checks.inquiry import Inquiry
from d5test.checks.memory import require
from d5test.checks.value import forward, gradient
from d5test.client.messages import BackendInfo, Crashed, Extremes, Hung, Raised
from d5test.numerics.arithmetic import Arithmetic
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
OVERHEAD = 60.0
"""Seconds for what a call does beside its elements and multiplications."""
ELEMENTS, MULTIPLICATIONS = 10**6, 10**8
"""As many of each a second a framework does at least; torch on two cores did 2e7 elements."""
DIFFERENT = 0.25
"""The share of an input's numbers that differ from each other, at least."""
MEMORY_REFUSED = re.compile(
    r"(un|not |n't )(able to )?allocate|failed to allocate|not enough memory|out of memory"
    r"|bad_alloc|RESOURCE_EXHAUSTED|\bOOM\b",
    re.IGNORECASE,
)
"""What frameworks say where memory does not suffice."""
OVERFLOWED = re.compile(r"\d{16}|\d [PE]i?B")
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


def has_samples_and_gradient(operator: type[Operator], about: BackendInfo, dtype: str) -> Why:
    """As `has_samples`, and there is a gradient."""
    return has_samples(operator, about, dtype) or with_gradient(operator, about, dtype)


def large_cases(operator: type[Operator], dtype: str) -> tuple[Case, ...]:
    """The case of the corpus that is repeated: the one of the least work for its size."""
    return _least().get((operator, dtype), ())


@cache
def _least() -> Mapping[tuple[type[Operator], str], tuple[Case, ...]]:
    """By operator and dtype."""
    least: dict[Any, Large] = {}
    for problem in corpus().problems:
        large, key = repeated(problem.case, LARGE), (type(problem.case.op), problem.case.dtype)
        if large and (key not in least or large.work < least[key].work):
            least[key] = large
    return {key: (large.case,) for key, large in least.items()}


def repeated(case: Case, elements: int) -> Large | None:
    """The case repeated until an input or output has more than so many elements."""
    arrays = case.arrays()
    outputs = case.op(*double(arrays))
    along = next(_independent(case, arrays, outputs), None) if _differs(case, arrays) else None
    if along is None:
        return None
    most = max(np.size(x) for x, _ in _tensors(arrays, outputs, along))
    return Large(case, along, elements // most + 1) if most else None


def _independent(case: Case, arrays: Arrays, outputs: tuple[Any, ...]) -> Iterator[Batch]:
    """Axes along which samples do not depend on each other, so the reference says.

    It is asked for the samples, others, and the samples again: they have to get what they get
    alone. Equal others would leave means as they are.
    """
    rank = 0 if arrays[0] is None else arrays[0].ndim
    for axes in dict.fromkeys(_candidates(case, arrays, rank)):
        try:
            with np.errstate(all="ignore"):
                along = [_amid_others(x, axis) for x, axis in zip(arrays, axes, strict=True)]
                many = case.op(*double(along))
        except (
            ValueError,
            IndexError,
            RuntimeError,
        ):  # the reference refuses what is no valid input
            continue
        if len(many) == len(outputs):  # Split may make more pieces
            repeated_along = tuple(map(_along, outputs, many))
            if repeated_along[0] is None:
                continue
            batch = Batch(axes, repeated_along)
            if all(_out_of_step(x, axis) for x, axis in _tensors(arrays, outputs, batch)):
                yield batch


def _tensors(arrays: Arrays, outputs: tuple[Any, ...], along: Batch) -> Iterator[tuple[Any, int]]:
    """What is repeated, and along which axis."""
    inputs = zip(arrays, along.inputs, strict=True)
    for x, axis in (*inputs, *zip(outputs, along.outputs, strict=True)):
        if x is not None and axis is not None:
            yield x, axis


def _out_of_step(x: Array, axis: int) -> bool:
    """Whether samples that follow one another are out of step with every large power of two."""
    period = prod(x.shape[axis:])
    return period & (period - 1) != 0


def _differs(case: Case, arrays: Arrays) -> bool:
    """Whether a number that comes from another place is another number, in most places.

    Not where most are 0, or the inputs that are shared would hide it.
    """
    floats = (x for x, t in zip(arrays, case.inputs, strict=True) if t and t.dtype == case.dtype)
    return all(len(np.unique(x)) >= DIFFERENT * np.size(x) for x in floats if x is not None)


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


def _amid_others(x: Array | None, axis: int | None) -> Array | None:
    """The samples of an input, others, and the samples again; numbers of the same signs."""
    if x is None or axis is None:
        return x
    others = x * x.dtype.type(0.5) if np.issubdtype(double((x,))[0].dtype, np.floating) else x
    return np.concatenate([x, others, x], axis)


def _along(y: Array, many: Array) -> int | None:
    """The axis along which a result stands at both ends of another one; nothing if none."""
    for axis in range(y.ndim):
        if many.shape == (*y.shape[:axis], 3 * y.shape[axis], *y.shape[axis + 1 :]):
            first, _, last = np.split(many, 3, axis)
            # in float64, where sums may be taken in another order
            alike = (
                np.allclose(y, part, rtol=1e-9, atol=1e-12, equal_nan=True)
                for part in (first, last)
            )
            if all(alike):
                return axis
    return None


def large_bytes(client: Any, case: Case) -> Judgement:
    """With more than 2^31 bytes in an input or output, samples get what they get alone."""
    return _outputs("large_bytes", client, case, LARGE // dtype_of(case.dtype).itemsize)


def large_elements(client: Any, case: Case) -> Judgement:
    """With more than 2^31 elements in an input or output, samples get what they get alone."""
    return _outputs("large_elements", client, case, LARGE)


def large_bytes_gradient(client: Any, case: Case) -> Judgement:
    """As `large_bytes`, of the gradients of inputs that the samples do not share."""
    return _gradients("large_bytes_gradient", client, case, LARGE // dtype_of(case.dtype).itemsize)


def large_elements_gradient(client: Any, case: Case) -> Judgement:
    """As `large_elements`, of the gradients of inputs that the samples do not share."""
    return _gradients("large_elements_gradient", client, case, LARGE)


def _outputs(check: str, client: Any, case: Case, elements: int) -> Judgement:
    inquiry, large = Inquiry(check, client, case), _repeated(case, elements)
    _require_memory(inquiry, large, 1)
    forward(client, case)
    feed = inquiry.feed()
    (small,) = inquiry.ask(feed)
    along = large.along.outputs[: len(small.outputs)]
    extremes, _ = _asked(inquiry, large, feed, along, ())
    return _judged(
        inquiry, large, "result", inquiry.forward_bounds, small.outputs, extremes, along
    )


def _gradients(check: str, client: Any, case: Case, elements: int) -> Judgement:
    inquiry, large = Inquiry(check, client, case), _repeated(case, elements)
    wanted = tuple(i for i in inquiry.wanted if large.along.inputs[i] is not None)
    if not wanted:
        raise Inapplicable("the samples share every input that has a gradient")
    _require_memory(inquiry, large, 2)
    gradient(client, case)
    grads = inquiry.upstream
    feed = inquiry.feed(grads=grads)
    (small,) = inquiry.ask(feed)
    along = large.along.outputs[: len(small.outputs)]
    _, extremes = _asked(inquiry, large, feed, along, wanted)

    def bounds(arithmetic: Arithmetic) -> Bounds:
        every = dict(zip(inquiry.wanted, inquiry.gradient_bounds(arithmetic, grads), strict=True))
        return tuple(every[i] for i in wanted)

    slopes = small.gradients or (None,) * len(case.inputs)
    return _judged(
        inquiry, large, "gradient", bounds,
        [slopes[i] for i in wanted], [extremes[i] for i in wanted],
        [large.along.inputs[i] for i in wanted],
    )  # fmt: skip


def _repeated(case: Case, elements: int) -> Large:
    """The case repeated. Raises `Inapplicable`."""
    large = repeated(case, elements)
    if large is None:
        raise Inapplicable("the samples of this case depend on each other")
    return large


def _asked(
    inquiry: Inquiry, large: Large, feed: Any, along: Sequence[int | None], wanted: Sequence[int]
) -> tuple[list[Extremes], list[Extremes | None]]:
    """The extremes of outputs and gradients, or why there are none."""
    case = inquiry.case
    elements = large.times * max(np.size(x) for x in inquiry.arrays if x is not None)
    seconds = OVERHEAD + elements / ELEMENTS + large.multiplications / MULTIPLICATIONS
    axes = large.along.inputs, along
    try:
        with inquiry.client.answering_within(seconds):
            extremes: tuple[list[Extremes], list[Extremes | None]] = inquiry.client.repeat(
                case.op, feed, axes, large.times, wanted=wanted, form=case.form
            )
    except Crashed as crash:
        if "SIGKILL" in crash.how:
            raise Unsupported(f"{case.op.name} was killed: too large for this machine") from None
        raise _fault(inquiry, large, "crash", "the process died", how=str(crash)) from None
    except Hung as hang:
        raise _fault(inquiry, large, "hang", "no answer", how=str(hang)) from None
    except Raised as raised:
        lacking = raised.type.endswith("MemoryError") or MEMORY_REFUSED.search(raised.message)
        if lacking and not OVERFLOWED.search(raised.message):
            line = raised.message.partition("\n")[0]
            raise Unsupported(f"{case.op.name} got too little memory: {line}") from None
        what = "valid inputs raise an exception"
        raise _fault(inquiry, large, "exception", what, raised=str(raised)) from None
    finally:
        inquiry.client.renew()  # some frameworks keep what they have allocated
    return extremes


def _judged(
    inquiry: Inquiry,
    large: Large,
    what: str,
    bounds: Any,
    small: Sequence[Any],
    extremes: Sequence[Extremes | None],
    along: Sequence[int | None],
) -> Judgement:
    """The worse judgement of the lowest and the highest of each element, or the fault it is.

    How many there are, shapes and dtypes have to follow from the small call. Where an output has
    no axis, as MaxPool's indices, only its dtype is asked.
    """
    got, want = [], []
    for e, y, axis in zip_longest(extremes, small, along):
        got.append(None if e is None else (e.dtype, *([] if axis is None else e.shape)))
        shape = np.multiply(
            np.shape(y), [large.times if a == axis else 1 for a in range(np.ndim(y))]
        )
        want.append(
            None if y is None else (y.dtype.name, *([] if axis is None else shape.tolist()))
        )
    if got != want:
        wrong = f"a {what} has another shape or dtype than the small call's"
        raise _fault(inquiry, large, "shape", wrong, got=str(got), want=str(want))
    worst = Judgement(telling=True)
    for end in ("lowest", "highest"):
        values = [
            None if e is None or axis is None else getattr(e, end)
            for e, axis in zip(extremes, along, strict=True)
        ]
        judgement, _ = tightest(inquiry.attempts(), bounds, values)
        if not judgement.right:
            wrong = f"the {what} is wrong in some of {large.times} repetitions"
            kind = "value" if what == "result" else "gradient"
            raise _fault(inquiry, large, kind, wrong, judgement)
        if judgement.arithmetic > inquiry.allowed.name:
            wrong = f"the {what} is outside class {inquiry.allowed.name}"
            raise _fault(inquiry, large, "arithmetic", wrong, judgement)
        worst = max(worst, judgement, key=lambda j: j.ratio)
    return replace(worst, telling=True)


def _require_memory(inquiry: Inquiry, large: Large, passes: int) -> None:
    """Raise `Unsupported` where the large tensors do not fit into memory."""
    tensors = _tensors(inquiry.arrays, large.case.op(*double(inquiry.arrays)), large.along)
    elements = sum(np.size(x) for x, _ in tensors) * large.times
    needed = COPIES * passes * elements * dtype_of(large.case.dtype).itemsize
    gradient_of = "'s gradient" if passes > 1 else ""
    require(needed, ROOM, large.case, f"{gradient_of} repeated {large.times} times")


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
