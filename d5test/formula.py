"""A NumPy function as an operator: what `d5test.check(..., like=formula, inputs=...)` judges by.

    rope = operator_of(
        lambda x, cos, sin: ...,
        inputs={"x": "b h s 2*d", "cos": "s d", "sin": "s d"},
        sizes={"d": (32, 64)},
    )

The function is the forward; its gradient is derived (`d5test.numerics.tape`), and its bars are
those of its primitives. Axes with one name have one size. Sizes are drawn as those of any
operator: small and different, tied, at boundaries of vectors and tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from inspect import Parameter, signature
from keyword import iskeyword
from math import prod
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from d5test.axes import SEVERAL, axis_of, names_in, size_of
from d5test.case import FLOATS, Operator, Tensor
from d5test.names import hint
from d5test.numerics.bars import Bar, masking, scaled_last
from d5test.numerics.tape import gradients
from d5test.numerics.tracked import largest
from d5test.strategies.draw import ORDINARY, SINGLE, Draw
from d5test.strategies.registry import attributes as draws_attributes
from d5test.strategies.registry import inputs as draws_inputs
from d5test.strategies.sizes import LARGEST
from d5test.values import REGIMES

WHOLE = ("int64", "int32", "int16", "int8", "uint8")
IN_NUMPY = (
    "A formula runs on arrays that carry error bars: write it in NumPy alone, with the functions "
    "that docs/extending.md lists, or call operators of d5test.reference.operators."
)
LARGEST_RESULT = 1_000_000
"""Elements of what a formula computes on the way, about: more take a second of every case."""
RARE = 1e-30
"""Underflow below this is so rare that all of its consequences may be granted; not in float16."""
SHORTEST, LONGER = 2, 64
"""What is left of an axis that is cut, and by how much one grows at most."""
APART = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
"""Sizes of which none is a sum or a product of others that a formula is likely to make."""
Sizes = Mapping[str, int]


class Input:
    """One input of a formula: its axes, and what it holds where that is not real numbers of any
    kind in the dtype under test.

    axes    names, numbers and sums and products of them, `"b s 2*d"`; `"... d"`: any axes before d
    values  the regime or regimes of its values, `"positive"` or `("uniform", 0, 1)`; see
            `d5test.values.REGIMES`
    below   whole numbers from 0 to one less than this: a number or an axis, `below="vocabulary"`
    dtype   of whole numbers (int64), `"bool"` for a mask, or `"float32"` for weights that stay in
            it beside inputs in 16 bits; None: the dtype under test

    Raises `ValueError` for an axis that cannot be read, an unknown regime or dtype.
    """

    def __init__(
        self,
        axes: str = "",
        *,
        values: str | tuple[Any, ...] | list[Any] = (),
        below: int | str | None = None,
        dtype: str | None = None,
    ) -> None:
        if not isinstance(axes, str):
            raise TypeError(f'axes are written in one text, as in "n 2*d", not {axes!r}')
        if below is not None and not (_whole(below) or isinstance(below, str)):
            raise TypeError(f'below= is a whole number or an axis, as in "c", not {below!r}')
        self.axes = tuple(map(axis_of, axes.split()))
        self.below = None if below is None else axis_of(str(below))
        self.dtype = "int64" if dtype is None and below is not None else dtype
        listed = values if isinstance(values, list) else [values] if values else []
        if not all(isinstance(r, str | tuple) and r for r in listed):
            raise TypeError(
                'values= is a regime, "positive" or ("uniform", 0, 1) say, or a list of them, '
                f"not {values!r}"
            )
        self.regimes = _named(listed)
        self._require_sense(axes)

    def _require_sense(self, axes: str) -> None:
        if SEVERAL in self.axes[1:]:
            raise ValueError(f'"{axes}": ... stands first')
        for name, *arguments in self.regimes:
            if name not in REGIMES:
                raise ValueError(f"no value regime {name!r}: {hint(name, REGIMES)}")
            try:
                Tensor((2,) * 4, values=(name, *arguments)).array(0, 0)
            except (TypeError, ValueError) as error:
                raise ValueError(f"values={(name, *arguments)}: {error}") from None
        known = ("bool", *WHOLE, *FLOATS)
        if self.dtype not in (None, *known):
            raise ValueError(f"no dtype {self.dtype!r}: {hint(str(self.dtype), known)}")
        if self.below is not None and self.dtype not in WHOLE:
            raise ValueError(f"below= is of whole numbers, and dtype= {self.dtype!r}")
        if self.below is not None and self.regimes:
            raise ValueError("below= and values= both say what the numbers are: leave one out")
        if self.below == SEVERAL:
            raise ValueError("below= is a number or one axis, not ...")
        most = np.iinfo(self.dtype).max if self.dtype in WHOLE else np.inf
        if self.below is not None and self.below.isdigit() and int(self.below) - 1 > most:
            raise ValueError(f"numbers below {self.below} are more than {self.dtype} has")
        if self.dtype in WHOLE and self.below is None and not self.regimes:
            raise ValueError(f"dtype={self.dtype!r} needs below=: the numbers are from 0 to below")

    @property
    def real(self) -> bool:
        """Whether it holds real numbers."""
        return self.dtype is None or self.dtype in FLOATS

    @property
    def names(self) -> Iterator[str]:
        """The names of axes that its sizes depend on."""
        for axis in self.measured:
            yield from names_in(axis)

    @property
    def measured(self) -> tuple[str, ...]:
        """Its axes, but for `...`, and what its numbers are below."""
        below = () if self.below is None else (self.below,)
        return (*(axis for axis in self.axes if axis != SEVERAL), *below)

    def shape(self, sizes: Sizes, several: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes of its axes."""
        sides = ((size_of(axis, sizes),) if axis != SEVERAL else several for axis in self.axes)
        return sum(sides, ())

    def values(self, sizes: Sizes) -> tuple[Any, ...]:
        """The regimes that its values may have, the simplest first."""
        if self.regimes or self.real:
            return self.regimes or _named(ORDINARY)
        if self.dtype == "bool":
            return (("mask", 0.5),)
        assert self.below is not None
        return (("below", size_of(self.below, sizes)),)


def _named(regimes: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple((r,) if isinstance(r, str) else tuple(r) for r in regimes)


def derived(op: Operator, grads: Any, inputs: Any, outputs: Any) -> tuple[Any, ...]:
    """The `backward` of an operator, from its `forward` alone: write `backward = derived`."""
    scales = [largest(dy) for dy in grads if dy is not None]

    def visit(dy: Any) -> None:
        if isinstance(dy, Bar) and dy.arithmetic.primitive.smallest_subnormal < RARE:
            scales.append(max(largest(dy), 1.0) * factor)  # a small dy may be a factor before

    factor = max([1.0, *(largest(x) for x in inputs if isinstance(x, Bar))])
    made = gradients(op.forward, grads, masking(inputs), visit)
    scale = max(scales, default=0.0)
    return tuple(None if dx is None else scaled_last(dx, scale) for dx in made)


@dataclass(frozen=True)
class Trace:
    """What a function returned, the shapes of all that it computed, the ufuncs that it called."""

    outputs: Sequence[Any]
    shapes: frozenset[tuple[int, ...]]
    called: frozenset[str] = frozenset()

    def require_arrays(self) -> None:
        """Raise `TypeError` unless arrays were returned."""
        for y in self.outputs:
            if not isinstance(y, np.ndarray | np.generic):
                kind = "None" if y is None else f"a {type(y).__name__}"
                raise TypeError(f"the formula returned {kind}, where an array is wanted")
        if not self.outputs:
            raise TypeError("the formula returned nothing, where an array is wanted")


class Described(Operator):
    """An operator that a function computes whose inputs are described by their axes."""

    function: ClassVar[Callable[..., Any]]
    called: ClassVar[frozenset[str]] = frozenset()
    """The ufuncs that it calls, as far as that is known."""
    constant: ClassVar[tuple[int, ...]] = ()
    """The positions of the inputs by which nothing is differentiated."""
    results: ClassVar[int] = 1
    """How many outputs it has."""
    described: ClassVar[tuple[Input, ...]] = ()
    options: ClassVar[Mapping[str, tuple[int, ...]]] = {}
    """The sizes that each axis may have; none: any."""

    def traced(self, arrays: Sequence[Any]) -> Trace:
        """What it computes of these arrays. Raises `TypeError` for what cannot be judged."""
        raise NotImplementedError

    def fits(self, inputs: tuple[Tensor | None, ...]) -> bool:
        """Whether axes of one name have one size, and each a size that it may have."""
        sides = [
            (axis, side)
            for spec, t in zip(self.described, inputs, strict=True)
            if t is not None
            for axis, side in zip(reversed(spec.axes), reversed(t.shape), strict=False)
            if axis != SEVERAL
        ]
        sizes = {axis: side for axis, side in sides if axis in self.options}
        for name in self.options.keys() - sizes.keys():  # it stands in `2*d` alone
            tried = self.options[name] or range(1, 1 + max((n for _, n in sides), default=1))
            fitting = (n for n in tried if _agrees(name, n, sides, sizes))
            if (size := next(fitting, None)) is None:
                return False
            sizes[name] = size
        allowed = all(not some or sizes[name] in some for name, some in self.options.items())
        indices = all(
            t is None or spec.below is None or t.values == spec.values(sizes)[0]
            for spec, t in zip(self.described, inputs, strict=True)
        )
        return allowed and indices and all(size_of(axis, sizes) == n for axis, n in sides)


class Formula(Described):
    """An operator that is a function of NumPy arrays. Its gradient is derived from it."""

    domain: ClassVar[str] = "formula"

    def forward(self, *inputs: Any) -> Any:
        """The function, with the attributes as keyword arguments."""
        try:
            result = type(self).function(*inputs, **self.attributes)
        except (AttributeError, TypeError) as error:
            error.add_note(IN_NUMPY)
            raise
        return tuple(result) if isinstance(result, list) else result

    def traced(self, arrays: Sequence[Any]) -> Trace:
        """See `Described.traced`. Its gradients are derived once."""
        for array in arrays:
            array.flags.writeable = False
        _Seen.shapes.clear()
        _Seen.called.clear()
        outputs = self(*(a.view(_Seen) for a in arrays))
        trace = Trace(outputs, frozenset(_Seen.shapes), frozenset(_Seen.called))
        trace.require_arrays()
        gradients(self.forward, [np.ones(np.shape(y)) for y in outputs], arrays)
        return trace

    def backward(self, grads: Any, inputs: Any, outputs: Any) -> Any:
        """As `derived`."""
        made = derived(self, grads, inputs, outputs)
        return tuple(None if i in self.constant else dx for i, dx in enumerate(made))


def _agrees(name: str, size: int, sides: Sequence[tuple[str, int]], sizes: Sizes) -> bool:
    """Whether the axes that are made of this name and known ones have their sizes then."""
    known = {**sizes, name: size}
    return all(
        size_of(axis, known) == side
        for axis, side in sides
        if name in names_in(axis) and known.keys() >= set(names_in(axis))
    )


def operator_of(
    function: Callable[..., Any],
    inputs: Mapping[str, str | Input],
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    wrt: str | Sequence[str] | None = None,
    attributes: Mapping[str, Any] | None = None,
    base: type[Described] = Formula,
) -> type[Described]:
    """The class of operators that compute `function`, with strategies that draw cases of it.

    inputs      by the names of the function's parameters: axes, or an `Input`
    sizes       what an axis may measure, where not every size will do: a number or several
    wrt         the inputs that are differentiated by, `"x"` or `"x w"`; None: all real ones
    attributes  other parameters, as keyword arguments: a value, or a list of which one is drawn
    base        how it computes and is judged: a `Formula`, in NumPy

    Raises `ValueError` for names that do not fit together.
    """
    for what, names in (("inputs", inputs), ("sizes", sizes), ("attributes", attributes)):
        if names is not None and not isinstance(names, Mapping):
            raise TypeError(f"{what}= is a dict, by the names of the formula, not {names!r}")
    specs = {k: s if isinstance(s, Input) else Input(s) for k, s in inputs.items()}
    drawn = {k: _values(k, v, specs) for k, v in (attributes or {}).items()}
    options = {k: _sizes(k, v) for k, v in (sizes or {}).items()}
    axes = dict.fromkeys(n for s in specs.values() for n in s.names)
    _require_known("sizes", options, axes, "an axis of an input")
    options = {name: options.get(name, ()) for name in axes}
    if wrt is not None and not isinstance(wrt, str | list | tuple | set):
        raise TypeError(f'wrt= names inputs, as in "x w", not {wrt!r}')
    wanted = wrt.replace(",", " ").split() if isinstance(wrt, str) else wrt
    real = [k for k, s in specs.items() if s.real]
    if not real:
        raise ValueError("no input holds real numbers: there is nothing to be judged by bars")
    _require_known("wrt", wanted or (), real, "an input of real numbers")
    order = _in_order(function, specs, drawn)
    arrays = [specs[name] for name in order]
    first = next(name for name in order if specs[name].real)
    if specs[first].dtype is not None:
        raise ValueError(
            f"the first real input, {first}, is in the dtype under test, which dtypes= of check "
            "names: leave its dtype= out"
        )
    fields = [(name, Any, field(default=values[0])) for name, values in drawn.items()]
    members = {
        "function": staticmethod(function),
        "parameters": tuple(order),
        "constant": tuple(
            i for i, name in enumerate(order) if wanted is not None and name not in wanted
        ),
        "described": tuple(arrays),
        "options": options,
        "__doc__": function.__doc__ or "",
    }
    if wanted is not None and not wanted:
        members["backward"] = Operator.backward  # nothing is differentiated
    made: type[Described] = make_dataclass(
        _name(function), fields, bases=(base,), namespace=members, frozen=True, kw_only=True,
        repr=False,
    )  # fmt: skip
    draws_attributes(made)(partial(_draw_attributes, made, drawn))
    effort = _Effort(made(), arrays, options)
    made.called, made.results = effort.called, effort.results
    draws_inputs(made)(partial(_draw_inputs, arrays, options, effort))
    return made


def _sizes(name: str, size: Any) -> tuple[int, ...]:
    """The sizes that an axis may have. Raises `ValueError` for what is none."""
    several = isinstance(size, Iterable) and not isinstance(size, str)
    sizes = tuple(size) if several else (size,)
    if not sizes or not all(_whole(n) and n > 0 for n in sizes):
        raise ValueError(
            f"sizes={{{name!r}: {size!r}}}: an axis measures a whole number, at least 1, or "
            "one of several, as in (32, 64)"
        )
    return tuple(map(int, sizes))


def _whole(n: Any) -> bool:
    return isinstance(n, Integral) and not isinstance(n, bool)


def _values(name: str, value: Any, specs: Mapping[str, Input]) -> list[Any]:
    """The values that an attribute may have. Raises `ValueError` for what cannot be one."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError(f"attributes={{{name!r}: []}}: there is no value to draw")
    if any(isinstance(v, np.ndarray) for v in values):
        raise ValueError(f"the attribute {name!r} is an array: say its axes by inputs=")
    if name in specs or hasattr(Described, name):
        raise ValueError(f"an attribute cannot be called {name!r}: that is taken")
    return values


def _draw_attributes(cls: type[Described], drawn: Mapping[str, list[Any]], d: Draw) -> Described:
    return cls(**{name: d.choose(values) for name, values in drawn.items()})


def _draw_inputs(
    specs: Sequence[Input],
    options: Mapping[str, tuple[int, ...]],
    effort: _Effort,
    d: Draw,
    op: Described,
) -> tuple[Tensor, ...]:
    several = d.shape(1, 3) if any(SEVERAL in s.axes for s in specs) else ()
    sizes = {name: d.choose(some) if some else d.side() for name, some in options.items()}
    free = [name for name, some in options.items() if not some]
    while free and (
        effort.of(sizes) > LARGEST_RESULT
        or any(prod(spec.shape(sizes, several)) > LARGEST for spec in specs)
    ):
        longest = max(free, key=sizes.__getitem__)
        if sizes[longest] <= SHORTEST:
            break
        sizes[longest] //= 2
    _lengthen(specs, sizes, free)
    tensors: list[Tensor] = []
    for spec in specs:
        tensor = d.tensor(spec.shape(sizes, several), *spec.values(sizes), dtype=spec.dtype)
        if tensor.values == SINGLE and any(t.values == SINGLE for t in tensors):
            tensor = Tensor(tensor.shape, tensor.dtype)  # a product of both would be zero
        tensors.append(tensor)
    return tuple(tensors)


def _lengthen(specs: Sequence[Input], sizes: dict[str, int], free: Sequence[str]) -> None:
    """Make axes longer until all that are computed, `n-4` say, have an element.

    Raises `ValueError` where no size does that.
    """
    for spec in specs:
        for axis in spec.measured:
            for _ in range(LONGER):
                if size_of(axis, sizes) > 0:
                    break
                for name in names_in(axis):
                    sizes[name] += name in free
            else:
                raise ValueError(
                    f"the axis {axis!r} has no element, where {sizes}: say by sizes= what "
                    f"{' and '.join(names_in(axis)) or 'it'} may measure"
                )


class _Seen(np.ndarray[Any, Any]):
    """An array that notes what is called on it, and the shapes of all that is computed from it."""

    shapes: ClassVar[set[tuple[int, ...]]] = set()
    called: ClassVar[set[str]] = set()

    def __array_finalize__(self, source: Any) -> None:
        _Seen.shapes.add(self.shape)

    def __array_ufunc__(self, ufunc: np.ufunc, method: Any, *inputs: Any, **options: Any) -> Any:
        _Seen.called.add(ufunc.__name__)
        if "out" in options:
            options["out"] = tuple(map(_plain, options["out"]))
        result = getattr(ufunc, method)(*map(_plain, inputs), **options)
        return result.view(_Seen) if isinstance(result, np.ndarray) else result


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, _Seen) else x


class _Effort:
    """How large what a formula computes on the way is: a score of attention has n by n elements.

    The formula runs once, on small inputs whose axes differ, so that each side of what it computes
    tells by its size which axis it is. Raises what the formula raises, and `TypeError` for one
    that cannot be differentiated.
    """

    def __init__(
        self, op: Described, specs: Sequence[Input], options: Mapping[str, tuple[int, ...]]
    ) -> None:
        apart = iter(APART)
        several = (next(apart), next(apart)) if any(SEVERAL in s.axes for s in specs) else ()
        small = {name: some[0] if some else next(apart, 2) for name, some in options.items()}
        if max(prod(s.shape(small, several)) for s in specs) > LARGEST:
            small |= {name: 2 for name, some in options.items() if not some}  # all alike
        _lengthen(specs, small, [name for name, some in options.items() if not some])
        for spec in specs:
            if (elements := prod(spec.shape(small, several))) > LARGEST:
                raise ValueError(
                    f"the input {' '.join(spec.axes)!r} has {elements} elements, where {small}: "
                    f"{LARGEST} are drawn at most"
                )
        arrays = [
            Tensor(s.shape(small, several), s.dtype or "float64", s.values(small)[0]).array(0, i)
            for i, s in enumerate(specs)
        ]
        with np.errstate(all="ignore"):
            trace = op.traced(arrays)
        self.called, self.results = trace.called, len(trace.outputs)
        axes: dict[int, tuple[str, ...]] = {size: (name,) for name, size in small.items()}
        for text in (axis for s in specs for axis in s.measured):
            axes.setdefault(size_of(text, small), tuple(names_in(text)))
        self._products = {
            tuple(sorted(name for side in shape for name in axes.get(side, ())))
            for shape in trace.shapes
        }

    def of(self, sizes: Sizes) -> int:
        """The elements of the largest array that is computed, about."""
        return max((prod(sizes[n] for n in names) for names in self._products), default=1)


def _in_order(
    function: Callable[..., Any], specs: Mapping[str, Input], drawn: Mapping[str, Any]
) -> list[str]:
    """The inputs in the order of the function's parameters. Raises `ValueError` if they differ."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C: as the inputs are given
        return list(specs)
    if any(p.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD) for p in parameters):
        return list(specs)
    if alone := [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name in specs]:
        raise ValueError(
            f"{', '.join(alone)}: inputs are given by position, so they stand before the * "
            "in the formula"
        )
    names = [p.name for p in parameters]
    _require_known("inputs", specs, names, "a parameter of the formula")
    _require_known("attributes", drawn, names, "a parameter of the formula")
    asked = {p.name for p in parameters if p.default is Parameter.empty}
    if missing := [name for name in names if name in asked - specs.keys() - drawn.keys()]:
        raise ValueError(
            f"inputs= says nothing of {', '.join(missing)}, which the formula takes: give the "
            f'axes, inputs={{"{missing[0]}": "n d"}}, or a value by attributes='
        )
    return [name for name in names if name in specs]


def _require_known(what: str, names: Any, known: Any, is_one: str) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{what}= names {name!r}, which is not {is_one}: {hint(name, known)}")


def _name(function: Callable[..., Any]) -> str:
    """What the operator is called: as the function, if that is a name."""
    name = getattr(function, "__name__", "")
    return name if name.isidentifier() and not iskeyword(name) else "formula"
