"""A function or a module of PyTorch as a reference, in float64 on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import signature
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from d5test import formula
from d5test.case import Array, as_tuple
from d5test.formula import Described, Trace
from d5test.modules.montecarlo import MonteCarlo
from d5test.numerics.bounds import double
from d5test.numerics.sampled import NO_MORE, Error, Sampled

_NUMPY = {
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "pow": "power",
    "sigmoid": "expit",
}
"""What NumPy, by which backends grant accuracies, calls functions of torch."""


def _tensor(array: Any) -> torch.Tensor:
    """A tensor of its own."""
    return torch.from_numpy(np.array(array))


class TorchReference(Sampled, Described):
    """An operator that a function of PyTorch's tensors computes."""

    domain: ClassVar[str] = "torch"
    whole_dtypes: ClassVar[bool] = True

    def traced(self, arrays: Sequence[Any]) -> Trace:
        """See `Described.traced`. Raises `TypeError` for a function that draws numbers."""
        require_repeatable(partial(type(self).function, **self.attributes), arrays)
        shapes, primitives = Shapes(), MonteCarlo(lambda value, *_: value)
        with shapes:
            outputs = self.run(double(arrays), None, None)
        with _in_float64(primitives):
            type(self).function(*map(_tensor, double(arrays)), **self.attributes)
        called = {_NUMPY.get(name, name) for name in primitives.called}
        trace = Trace(outputs, frozenset(shapes.seen), frozenset(called))
        trace.require_arrays()
        return trace

    def run(
        self,
        inputs: Sequence[Any],
        grads: Sequence[Any] | None,
        error: Error | None,
        ulps: Mapping[str, float] = NO_MORE,
    ) -> tuple[Array | None, ...]:
        """See `Sampled.run`."""
        tensors = [None if x is None else _tensor(x) for x in inputs]
        moving = [
            i
            for i, x in enumerate(tensors)
            if x is not None and x.is_floating_point() and i not in self.constant
        ]
        with _in_float64(None if error is None else MonteCarlo(error, ulps)):
            if grads is not None:
                for i in moving:
                    tensors[i].requires_grad_()  # type: ignore[union-attr]
            outputs = results_of(type(self).function(*tensors, **self.attributes))
            if grads is None:
                return tuple(y.detach().numpy() for y in outputs)
            flowing = [
                (y, _tensor(dy))
                for y, dy in zip(outputs, grads, strict=True)
                if dy is not None and y.requires_grad
            ]
            wanted = [tensors[i] for i in moving]
            ys, dys = zip(*flowing, strict=True) if flowing else ((), ())
            made = (
                torch.autograd.grad(ys, wanted, dys, allow_unused=True)
                if flowing
                else [None] * len(wanted)
            )
        slopes = {
            i: np.zeros(np.shape(inputs[i])) if dx is None else dx.detach().numpy()
            for i, dx in zip(moving, made, strict=True)
        }
        return tuple(slopes.get(i) for i in range(len(inputs)))


@contextmanager
def _in_float64(errors: MonteCarlo | None) -> Iterator[None]:
    """Within: new tensors are in float64, attention is composed, one seed; perhaps with errors."""
    before = torch.get_default_dtype()
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.random.fork_rng(devices=[]))
        stack.callback(torch.set_default_dtype, before)
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(0)
        if errors is not None:
            stack.enter_context(errors)
        yield


class Shapes(TorchDispatchMode):  # type: ignore[misc]
    """Within: the shapes of all that torch computes are `seen`."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[int, ...]] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else (result,)
        self.seen |= {tuple(y.shape) for y in results if isinstance(y, torch.Tensor)}
        return result


def operator_of(like: Callable[..., Any], **described: Any) -> type[Described]:
    """The class of operators that compute what a function or a module does.

    `described` as for `d5test.formula.operator_of`. A module's parameters are as they are; what
    else it remembers, as running statistics, is at each call as it is now.
    """
    function = like
    if isinstance(like, nn.Module):
        stateless, parameters = function_of(like)
        own = [torch.from_numpy(p) for p in parameters.values()]

        def function(*inputs: Any, **attributes: Any) -> Any:
            return stateless(*inputs, *own, **attributes)

        function.__name__ = type(like).__name__
        function.__signature__ = signature(like.forward)  # type: ignore[attr-defined]
    return formula.operator_of(function, **described, base=TorchReference)


def results_of(result: Any) -> list[torch.Tensor]:
    """The tensors that a function returned: alone, in a tuple, a list or a dictionary.

    Raises `TypeError` for anything else.
    """
    if isinstance(result, Mapping):
        result = tuple(result.values())
    flat: list[torch.Tensor] = []
    for part in as_tuple(tuple(result) if isinstance(result, list) else result):
        if isinstance(part, tuple | list):  # as an LSTM's state
            flat += results_of(tuple(part))
        elif isinstance(part, torch.Tensor) and part.is_complex():
            raise TypeError("it returned complex numbers, of which nothing is judged")
        elif isinstance(part, torch.Tensor):
            flat.append(part)
        elif part is not None:
            raise TypeError(f"it returned a {type(part).__name__}, where tensors are wanted")
    return flat


def function_of(module: nn.Module) -> tuple[Callable[..., Any], dict[str, Array]]:
    """A module as a function of its inputs and its parameters, and these by name, in float64.

    What it remembers, as running statistics, is as it was at each call. The module itself is
    called, and no copy, which a closure over its parts would not be of; it is left as it was.
    """
    parameters = {name: p.detach().double().numpy() for name, p in module.named_parameters()}
    buffers = {name: _wide(b.detach()) for name, b in module.named_buffers()}
    count = len(parameters)

    def function(*inputs: Any, **attributes: Any) -> Any:
        own = inputs[len(inputs) - count :]
        state = dict(zip(parameters, own, strict=True))
        state |= {name: b.clone() for name, b in buffers.items()}
        with _plain_tensors_in_float64(module):
            return functional_call(module, state, inputs[: len(inputs) - count], attributes)

    return function, parameters


@contextmanager
def _plain_tensors_in_float64(module: nn.Module) -> Iterator[None]:
    """Within: so are tensors that a module keeps as plain attributes; all are as before then."""
    before = [dict(vars(part)) for part in module.modules()]
    try:
        for part in module.modules():
            for name, value in list(vars(part).items()):
                if isinstance(value, torch.Tensor):
                    setattr(part, name, _wide(value))
        yield
    finally:
        for part, attributes in zip(module.modules(), before, strict=True):
            vars(part).clear()
            vars(part).update(attributes)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() else x


def require_repeatable(function: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """Raise `TypeError` if a function draws numbers, as a Dropout in training does."""
    results = []
    for seed in (1, 2):
        with _in_float64(None):
            torch.manual_seed(seed)
            made = results_of(function(*map(_tensor, double(inputs))))
            results.append([y.detach().numpy() for y in made])
    if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*results, strict=True)):
        raise TypeError(
            "the reference draws random numbers, as a Dropout in training does: nothing can be "
            "judged by it. Call .eval() on a module first"
        )
