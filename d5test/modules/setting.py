"""A problem at some sizes in a dtype, and its inputs by regime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from d5test.arguments import Mistake
from d5test.case import Array, Case, Operator, Tensor, dtype_of
from d5test.modules.candidate import NAME
from d5test.modules.problem import SEED, Problem
from d5test.modules.reference import (
    TorchReference,
    function_of,
    require_repeatable,
    results_of,
)
from d5test.numerics.arithmetic import Arithmetic
from d5test.numerics.bounds import Bounds

OWN = ("own",)
"""The regime of what `get_inputs()` draws."""
FURTHER = 100
"""What is added to the seed of an input that changes alone."""


@dataclass(frozen=True, repr=False)
class Drawn(Tensor):
    """An input that a problem draws, or a parameter, which no seed changes."""

    source: Callable[[int], Any] = field(default=lambda seed: None, compare=False)

    def array(self, seed: int, position: int) -> Array:
        """See `Tensor.array`."""
        if self.values[0] in ("own", "constant"):
            return np.asarray(self.source(seed))
        return super().array(seed, position)

    def __repr__(self) -> str:
        return repr(Tensor(self.shape, self.dtype, self.values))


class Setting:
    """A problem at some sizes in a dtype: the operator, and its inputs by regime.

    Raises `Mistake` where the reference cannot run, or draws random numbers; where it is `judged`
    by, and not only called.
    """

    def __init__(
        self, problem: Problem, dtype: str, *, judged: bool = True, uneven: bool = False
    ) -> None:
        self.problem, self.dtype, self._uneven = problem, dtype, uneven
        model = problem.model().to(getattr(torch, dtype))
        self._state = model.state_dict()
        self.even = [name for name, x in self._state.items() if _even(x)]
        """Parameters and statistics that begin as one number everywhere: scales, offsets."""
        if uneven:
            for k, name in enumerate(self.even):
                self._state[name] = _uneven(self._state[name], SEED + k)
            model.load_state_dict(self._state)
        function, self._parameters = function_of(model)
        inputs = self._inputs(0)
        _require_plain(inputs, problem.path)
        self._tensors = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        others = [None if i in self._tensors else x for i, x in enumerate(inputs)]
        self.others = others
        self.drawn = self._tensors if len(self._tensors) > 1 else []
        """The inputs of which each may change alone."""

        def call(*arrays: Any) -> Any:
            every = list(others)
            for i, x in zip(self._tensors, arrays, strict=False):
                every[i] = x
            return function(*every, *arrays[len(self._tensors) :])

        known: dict[bytes, Any] = {}
        members: dict[str, Any] = {"function": staticmethod(call), "known": known}
        self.operator = type(NAME, (Remembered,), members)()
        self.without_gradient = ""
        if judged:
            self._require_sense(call)
            self.without_gradient = self._why_no_gradient()
        if self.without_gradient:
            members["backward"] = Operator.backward
            self.operator = type(NAME, (Remembered,), members)()

    def _require_sense(self, call: Callable[..., Any]) -> None:
        """Raise `Mistake` if the reference cannot run in float64, or draws random numbers."""
        try:
            require_repeatable(call, self.case().arrays())
            shapes = [
                [y.shape for y in self.operator(*self.case(OWN, k).arrays())] for k in (0, 1)
            ]
            if shapes[0] != shapes[1]:
                raise Mistake("the shapes of its results depend on what its inputs hold")
        except Exception as error:
            kind = "" if isinstance(error, Mistake) else f"{type(error).__name__}: "
            raise Mistake(f"{self.problem.path}: in float64: {kind}{error}") from error

    def _inputs(self, seed: int) -> list[Any]:
        dtype = getattr(torch, self.dtype)
        return [
            x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
            for x in self.problem.inputs(seed)
        ]

    def _drawn(self, position: int, seed: int, later: int = 0) -> Array:
        return _array(self._inputs(seed + later)[position])

    def case(
        self, values: tuple[Any, ...] = OWN, seed: int = 0, changed: int | None = None
    ) -> Case:
        """The inputs of one call; the parameters are the last of them.

        With `changed` this input alone is what another seed draws.
        """
        tensors: list[Tensor] = []
        for i, x in enumerate(self._inputs(0)):
            if i in self._tensors:
                own = values if x.is_floating_point() else OWN
                name = str(x.dtype).removeprefix("torch.")
                drawn = partial(self._drawn, i, later=FURTHER * (i == changed))
                tensors.append(Drawn(tuple(x.shape), name, own, source=drawn))
        for name, p in self._parameters.items():
            array = p.astype(dtype_of(self.dtype))
            fixed = partial(_whatever_the_seed, array)
            values = ("constant", name, *(("uneven",) if self._uneven else ()))
            tensors.append(Drawn(p.shape, self.dtype, values, source=fixed))
        return Case(self.operator, tuple(tensors), seed)

    @cached_property
    def redrawn(self) -> Setting | None:
        """The same with such parameters drawn; `None` where none is, or the reference refuses."""
        if not self.even:
            return None
        try:
            redrawn = Setting(self.problem, self.dtype, uneven=True)
        except Mistake:
            return None
        return redrawn if redrawn.takes(OWN) else None

    def job(self, path: Path, name: str, *, compiled: bool = False) -> dict[str, Any]:
        """What a worker has to know to make the module of a file."""
        return {
            "path": str(path),
            "name": name,
            "init": self.problem.init_inputs(),
            "inputs": self.others,
            "seed": SEED,
            "state": self._state,
            "dtype": self.dtype,
            "parameters": {name: torch.Size(p.shape) for name, p in self._parameters.items()},
            "compile": compiled,
            "differentiable": not self.without_gradient,
        }

    def _why_no_gradient(self) -> str:
        """Why the reference has none, as where it writes to what its gradient needs."""
        case = self.case()
        arrays = case.arrays()
        try:
            self.operator.vjp(case.upstream(self.operator(*arrays)), arrays)
        except RuntimeError as error:
            return f"the reference has no gradient: {error}".partition(": [")[0]
        return ""

    def require_stateless(self) -> None:
        """Raise `Mistake` if a call of the reference depends on those before it."""
        model, inputs = self.problem.model(), self.problem.inputs(0)
        with torch.no_grad():
            pairs = zip(*(results_of(model(*inputs)) for _ in range(2)), strict=True)
        if not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs):
            raise Mistake(
                f"{self.problem.path}: the reference returns something else when it is called "
                "again: it keeps a state, by which nobody can be judged"
            )

    def takes(self, values: tuple[Any, ...]) -> bool:
        """Whether the reference is finite on such numbers: a logarithm is not on normal ones."""
        arrays = self.case(values).arrays()
        return all(np.isfinite(y).all() for y in self.operator(*arrays) if y.dtype.kind == "f")


class Remembered(TorchReference):
    """A reference whose bars are computed once for each set of inputs, for all candidates."""

    known: ClassVar[dict[bytes, Any]]

    def bounds(
        self, arrays: Sequence[Any], grads: Sequence[Any] | None, arithmetic: Arithmetic
    ) -> Bounds:
        """See `Operator.bounds`."""
        hashed = blake2b(repr((arithmetic.name, arithmetic.primitive, arithmetic.sums)).encode())
        for x in (*arrays, *(("grads", *grads) if grads is not None else ())):
            hashed.update(x.tobytes() if isinstance(x, np.ndarray) else repr(x).encode())
        key = hashed.digest()
        if key not in self.known:
            self.known[key] = super().bounds(arrays, grads, arithmetic)
        bounds: Bounds = self.known[key]
        return bounds


def _array(x: torch.Tensor) -> Array:
    """A tensor as an array; bfloat16 as ml_dtypes has it."""
    x = x.detach()
    array: Array = x.view(torch.uint16).numpy() if x.dtype == torch.bfloat16 else x.numpy()
    return array.view(dtype_of("bfloat16")) if x.dtype == torch.bfloat16 else array


def _even(x: torch.Tensor) -> bool:
    """Whether a tensor is one finite number everywhere."""
    return bool(
        x.is_floating_point() and x.numel() and x.isfinite().all() and (x == x.max()).all()
    )


def _uneven(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Other numbers of the same sign, by up to a half apart; of zero, from -1/2 to 1/2."""
    apart = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)).to(x.dtype) - 0.5
    return torch.where(x == 0, apart, x * (1 + apart))


def _whatever_the_seed(array: Array, seed: int) -> Array:
    return array


def _require_plain(inputs: Sequence[Any], path: Path) -> None:
    """Raise `Mistake` unless the inputs are real tensors, perhaps beside plain values."""
    if any(isinstance(x, list | tuple | dict | set) for x in inputs):
        raise Mistake(f"{path}: get_inputs() returns a nested list: give the tensors one by one")
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    if not tensors:
        raise Mistake(f"{path}: get_inputs() returns no tensor: there is nothing to vary")
    if any(x.is_complex() for x in tensors):
        raise Mistake(f"{path}: get_inputs() returns complex numbers, of which nothing is judged")
