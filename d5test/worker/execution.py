"""What a backend is asked to do, where the framework lives: run an operator on several inputs.

Every tensor that goes in is read again afterwards, every output once more after the last feed, and
memory that results share with inputs or with each other is named. NumPy and the framework only.
"""

import os
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from d5test.backends.base import Backend, Row, Unsupported
from d5test.worker.bound import BadRow, Bound, Misfit, OperatorView
from d5test.worker.own_code import place_in_own_code
from d5test.worker.wire import Bits

PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
Arrays = tuple[Bits | None, ...]
DERIVING = frozenset({"vjp", "jvp", "hvp", "vjp_again"})
"""Methods of a backend that call a row and return its outputs with derivatives."""
FRAMES = 8
"""The most frames of a traceback that are sent."""
CHECKED = 10
"""Calls of an operator in which it is looked whether its plan reads undeclared values."""


class Placed:
    """One feed on the device: what was given, and the tensors made of it.

    Input i is the same tensor as the input at `roots[i]`, its first place; `places[i]` is where it
    is among those that are `distinct`.
    """

    def __init__(self, feed: Any) -> None:
        inputs, grads, layouts, same_as, self.grad_layout, tangents, self.again = feed
        self.inputs: Arrays = tuple(inputs)
        self.grads: Arrays | None = None if grads is None else tuple(grads)
        self.tangents: Arrays | None = None if tangents is None else tuple(tangents)
        self.layouts = tuple(layouts or ("contiguous",) * len(self.inputs))
        self.roots: list[int] = []
        for i, earlier in enumerate(same_as or [None] * len(self.inputs)):
            self.roots.append(i if earlier is None else self.roots[earlier])
        self.distinct = sorted(set(self.roots))
        self.places = tuple(self.distinct.index(root) for root in self.roots)
        self.tensors: list[Any] = []
        self.upstream: list[Any] = []
        self.moves: list[Any] = []
        self.outputs: tuple[Any, ...] = ()
        self.gradients: tuple[Any, ...] | None = None

    @property
    def method(self) -> str:
        """The backend's by which it is differentiated."""
        if self.tangents is None:
            return "vjp_again" if self.again else "vjp"
        return "jvp" if self.grads is None else "hvp"

    def pull(
        self, bound: Bound, function: Callable[..., Any], roots: Sequence[int]
    ) -> Callable[[], Any]:
        """The call by which the backend differentiates a function of these tensors at `roots`."""
        folded = bound.folded(function, self.places)
        tensors = [self.tensors[i] for i in self.distinct]
        upstream = self.upstream[: bound.row.outputs]
        wanted = [self.distinct.index(root) for root in roots]
        method = getattr(bound.backend, self.method)
        if self.tangents is None:
            return partial(method, folded, tensors, upstream, wanted)
        moves = [self.moves[i] for i in self.distinct]
        if self.grads is None:
            return partial(method, folded, tensors, moves)
        return partial(method, folded, tensors, upstream, moves, wanted)

    def wanted(self, wanted: Sequence[int] | None) -> list[int]:
        """The distinct inputs whose gradients are wanted; `None`: all floating-point ones."""
        if wanted is None:
            floats = ("float", "bfloat")
            pairs = enumerate(self.inputs)
            wanted = [i for i, x in pairs if x is not None and x.dtype.startswith(floats)]
        return sorted({self.roots[i] for i in wanted})


def shape_of(tensor: Any) -> tuple[int, ...] | None:
    """A tensor's shape as it tells it, which one that is traced does too; `None`: it does not."""
    try:
        return tuple(map(int, tensor.shape))
    except (AttributeError, TypeError):
        return None


def rows_of_ours(backend: Backend, operator: str, form: str = "") -> Iterator[Row]:
    """The rows, or the forms of this name, that the backend's bases in d5test have, the nearest
    one first; none where their instances make them.
    """
    for kind in type(backend).__mro__:
        if kind.__module__.startswith("d5test.") and issubclass(kind, Backend):
            rows = kind.forms.get(operator, {}) if form else getattr(kind, "rows", {})
            if (form or operator) in rows:
                yield rows[form or operator]


class Execution:
    """The requests that need the backend, answered one after the other."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.where = ""
        """The step of the request that is being taken: what an exception is attributed to."""
        self._latest: tuple[Any, Bound] | None = None
        self._tensor: type | None = None
        self._forgotten = 0
        self.around: Callable[[], AbstractContextManager[None]] = nullcontext
        """What the framework's own work is done within: neither `put` nor `get`."""
        self._checked: Counter[tuple[str, tuple[bool, ...]]] = Counter()
        """How often plans were seen to read no values but those that their rows declare."""

    def bind(
        self, name: str, attributes: dict[str, Any], form: str = "", ours: bool = False
    ) -> Bound:
        """The row of an operator, or `ours` that it replaces.

        The same operator asked again is the same compiled function.
        """
        row = self.backend.row_for(name, form)
        if ours:
            replaced = next(rows_of_ours(self.backend, name, form), None)
            if replaced is None:
                raise Unsupported(f"d5test has no row of {name} that the backend replaces")
            row = replaced
        op = OperatorView(name, attributes)
        key = (name, form, repr(attributes), ours)
        if self._latest is None or self._latest[0] != key:
            self._latest = None
            self.where = "compile"
            self._latest = key, Bound(self.backend, row, op)
        return self._latest[1]

    def run(
        self,
        name: str,
        attributes: dict[str, Any],
        feeds: Sequence[Any],
        wanted: Sequence[int] | None,
        reuse: bool,
        form: str,
        ours: bool = False,
    ) -> list[Any]:
        """Results of the operator on each feed, which is as `plain_feed` makes it.

        With `reuse` a feed is written into the tensors of the one before, where the framework can.
        An array that is as it was given is answered by `True`.
        """
        bound = self.bind(name, attributes, form, ours)
        placed: list[Placed] = []
        answers: list[Any] = []
        for feed in feeds:
            before = placed[-1] if placed else None
            now = Placed(feed)
            self.place(now, before if reuse and self.backend.mutable else None)
            placed.append(now)
            self.compute(bound, now, wanted)
            self.check_values(bound, now)
            outputs = [self.get(y) for y in now.outputs]
            gradients = (
                None if now.gradients is None else [self.maybe_get(dx) for dx in now.gradients]
            )
            after = self.again(now.tensors, now.inputs)
            grads_after = None if now.grads is None else self.again(now.upstream, now.grads)
            answers.append([outputs, gradients, after, grads_after])
            if not reuse:
                now.tensors, now.upstream, now.moves, now.gradients = [], [], [], None
        for now, answer in zip(placed, answers, strict=True):
            answer.append(self.again(now.outputs, tuple(answer[0])))
        return answers

    def place(self, now: Placed, before: Placed | None = None) -> None:
        """Put a feed on the device, into the tensors of the feed before it where they fit."""
        roots, alike = now.roots, None
        laid_out = now.layouts, now.grad_layout, roots
        if before is not None and (before.layouts, before.grad_layout, before.roots) == laid_out:
            alike = before
        for i, x in enumerate(now.inputs):
            if roots[i] != i:
                now.tensors.append(now.tensors[roots[i]])
            else:
                old = None if alike is None else (alike.inputs[i], alike.tensors[i])
                now.tensors.append(self.put(x, now.layouts[i], old))
        for i, dy in enumerate(now.grads or ()):
            old = None
            if alike is not None and alike.grads is not None and i < len(alike.grads):
                old = (alike.grads[i], alike.upstream[i])
            now.upstream.append(self.put(dy, now.grad_layout, old))
        now.moves = [self.put(t, "contiguous", None) for t in now.tangents or ()]

    def put(self, x: Bits | None, layout: str, old: tuple[Bits | None, Any] | None) -> Any:
        """A tensor with these values. The array handed on is a copy: frameworks may adopt it."""
        if x is None:
            return None
        was, tensor = old or (None, None)
        if was is not None and was.dtype == x.dtype and was.array.shape == x.array.shape:
            self.where = "refill"
            self.backend.refill(tensor, x.array.copy(), x.dtype)
            return tensor
        self.where = "put"
        return self.backend.put(x.array.copy(), x.dtype, layout)

    def compute(self, bound: Bound, now: Placed, wanted: Sequence[int] | None) -> None:
        """Forward, and backward if there are upstream gradients; return when it is done."""
        with self.around():
            self._compute(bound, now, wanted)

    def _compute(self, bound: Bound, now: Placed, wanted: Sequence[int] | None) -> None:
        if now.grads is None and now.tangents is None:
            self.where = "call"
            now.outputs = self.outputs(bound, bound.function(*now.tensors))
        else:
            function, roots = bound.function, now.wanted(wanted)
            if now.grads is not None and not bound.compiled:
                function = partial(self.fitting, function, now.upstream)
            self.where = now.method
            pulled = now.pull(bound, function, roots)()
            if not isinstance(pulled, (tuple, list)) or len(pulled) != 2:
                kind = type(pulled).__name__
                raise BadRow(f"{self.where} returned {kind}, not a pair: outputs, gradients")
            result, computed = pulled
            now.outputs = self.outputs(bound, result)
            every = len(now.inputs)
            if now.grads is None:  # one for each output
                every = len(now.outputs)
                roots = list(range(every))
            now.gradients = self.gradients(bound, computed, roots, every)
        self.where = "wait"
        self.backend.wait_to_read(
            [t for t in (*now.outputs, *(now.gradients or ())) if t is not None]
        )

    def fitting(self, function: Callable[..., Any], upstream: Sequence[Any], *inputs: Any) -> Any:
        """What the function returns. Raises `Misfit` where an upstream gradient does not fit it.

        The framework may not look at that, and read beyond its end. Tensors that tell no shape
        are not looked at.
        """
        result = function(*inputs)
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        for k, pair in enumerate(zip(outputs, upstream, strict=False)):
            shape, wanted = map(shape_of, pair)
            if shape != wanted and None not in (shape, wanted):
                raise Misfit(f"output {k} has the shape {shape}, not {wanted}")
        return result

    def outputs(self, bound: Bound, result: Any) -> tuple[Any, ...]:
        """What a row returned, as a tuple of tensors. Raises `BadRow`."""
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        most = bound.row.outputs
        if most is not None and len(outputs) > most:
            raise BadRow(
                f"{len(outputs)} outputs of {bound.op.name} were returned, "
                f"more than outputs={most} allows"
            )
        by = f" by {self.where}" if self.where in DERIVING else ""
        for k, y in enumerate(outputs):
            self.check_tensor(y, f"as output {k}{by}")
        return outputs

    def gradients(
        self, bound: Bound, computed: Sequence[Any], roots: list[int], count: int
    ) -> tuple[Any, ...]:
        """One gradient for each input, `None` where none is wanted or the framework has none."""
        if len(computed) != len(roots):
            raise BadRow(
                f"{self.where} returned {len(computed)} gradients of {bound.op.name}, "
                f"not {len(roots)}"
            )
        gradients: list[Any] = [None] * count
        for root, dx in zip(roots, computed, strict=True):
            if dx is not None:
                self.check_tensor(dx, f"by {self.where} for input {root}")
                gradients[root] = dx
        return tuple(gradients)

    def check_tensor(self, value: Any, what: str) -> None:
        """Raise `BadRow` unless `value` is of the type that the backend's `put` makes."""
        if self._tensor is None:
            where, self.where = self.where, "put"
            self._tensor = type(self.backend.put(np.zeros(1, np.float32), "float32"))
            self.where = where
        if not isinstance(value, self._tensor):
            kind, expected = type(value), self._tensor
            raise BadRow(
                f"a {kind.__module__}.{kind.__qualname__} was returned {what}, "
                f"not a {expected.__module__}.{expected.__qualname__}"
            )

    def check_values(self, bound: Bound, now: Placed) -> None:
        """Raise `BadRow` if the plan reads values that the row does not declare.

        The first calls of each operator are looked at, for each choice of optional inputs: in one
        of them other values may mean the same. They are zeros, or ones in place of zeros.
        """
        key = bound.op.name, tuple(x is None for x in now.inputs)
        if self._checked[key] == CHECKED or now.gradients is not None:
            return
        others = [
            self.put(Bits(np.full_like(x.array, (x.array == 0).all()), x.dtype), layout, None)
            if x is not None and x.array.size
            else None
            for x, layout in zip(now.inputs, now.layouts, strict=True)
        ]
        self.where = "call"
        position = bound.values_read(now.tensors, others, self.get)
        if position is not None:
            raise BadRow(
                f"the plan of {bound.op.name} reads the values of input {position}, which its row "
                "does not declare: read them from the argument of the function that it returns; "
                f"or, if the plan needs them, add values=({position},) to the row"
            )
        self._checked[key] += 1

    def get(self, tensor: Any) -> Bits:
        """The values of a tensor."""
        self.where = "get"
        got = self.backend.get(tensor)
        kinds = [type(each) for each in got] if isinstance(got, tuple | list) else [type(got)]
        if len(kinds) != 2 or not issubclass(kinds[0], np.ndarray | np.generic):
            names = ", ".join(kind.__name__ for kind in kinds)
            raise BadRow(f"get returned {names}, not a pair: a NumPy array, the dtype's name")
        return Bits(*got)

    def maybe_get(self, tensor: Any) -> Bits | None:
        """The values of a tensor, if there is one."""
        return None if tensor is None else self.get(tensor)

    def again(self, tensors: Sequence[Any], before: Sequence[Any]) -> list[Any]:
        """Tensors read again: `True` for one that is as it was."""
        answers: list[Any] = []
        for tensor, was in zip(tensors, before, strict=False):
            now = self.maybe_get(tensor)
            answers.append(True if now is not None and now.same(was) else now)
        return answers

    def compilations(self) -> int | None:
        """How many compilations have happened since the last reset."""
        count = self.backend.compilations()
        return None if count is None else count - self._forgotten

    def reset(self) -> None:
        """Forget what was compiled."""
        self._latest = None
        self.backend.reset()
        self._forgotten = self.backend.compilations() or 0

    def failure(self, error: BaseException) -> tuple[Any, ...]:
        """An exception as an answer: unsupported, or raised in which step and by whose code.

        What is unsupported is refused unless the row alone says so, and neither `put`, which lacks
        a dtype, nor an exception of the framework that the row handles.
        A device that is lost was so by the call, whichever step was the first to notice.
        """
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, Unsupported):
                frames = traceback.walk_tb(error.__traceback__)
                within = self._latest is not None and self._latest[1].code in {
                    frame.f_code for frame, _ in frames
                }
                handled = cause.__cause__ or cause.__context__
                return "unsupported" if within and not handled else "refused", str(cause)
            if isinstance(cause, Misfit):
                return "raised", "Misfit", str(cause), "", "fit", ""
            cause = cause.__cause__
        if isinstance(error, Exception) and (reason := self.backend.refusal(error)):
            return "refused", reason
        lost = isinstance(error, Exception) and self.backend.lost(error)
        where = "row" if isinstance(error, BadRow) else "call" if lost else self.where
        codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        if where != "row" and self._latest is not None and self._latest[1].code in codes:
            where = "call"
        kind = type(error)
        name = kind.__qualname__
        if kind.__module__ != "builtins" and kind is not BadRow:
            name = f"{kind.__module__}.{name}"
        ours = not lost and where != "row"
        place = place_in_own_code(error.__traceback__, self.backend) if ours else ""
        if where == "row" and self.where in DERIVING:
            place = self.where
        return (
            "lost" if lost else "raised",
            name,
            str(error),
            _frames(error.__traceback__),
            where,
            place,
        )


def _frames(trace: TracebackType | None) -> str:
    """Where it was raised: file, line and text of each frame behind the last one of ours.

    Where one of ours raised, it and the stranger's that called it. Of a deep stack the middle is
    left out.
    """
    frames = traceback.extract_tb(trace)
    ours = [frame.filename.startswith(PACKAGE) for frame in frames]
    last = len(frames) - 1
    if ours[last]:
        first = max((i for i, own in enumerate(ours) if not own), default=last)
    else:
        first = max((i for i, own in enumerate(ours) if own), default=-1) + 1
    lines = traceback.format_list(frames[first:])
    if len(lines) > FRAMES:
        lines[FRAMES // 2 : -FRAMES // 2] = ["  ...\n"]
    return "".join(lines)
