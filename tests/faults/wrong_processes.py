"""Backends that end the process, or never answer; and what compiles, or only says so."""

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from d5test.backends.numpy import Traced
from tests.faults.wrong import Arrays, Honest, Wrong


class Ending(Wrong):
    """Every operator has the fault but Mul, which is called when a worker says what it is."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        if honest.args[0].name != "Mul":
            self.end()
        return honest(*inputs)

    def end(self) -> None:
        raise NotImplementedError


class Aborting(Ending):
    def end(self) -> None:
        print("terminate called after throwing an instance of 'std::bad_alloc'", flush=True)
        os.abort()


class Segfaulting(Ending):
    def end(self) -> None:
        ctypes.string_at(0)


class Exiting(Ending):
    def end(self) -> None:
        os._exit(3)


class Hanging(Ending):
    def end(self) -> None:
        time.sleep(3600)


class Raising(Ending):
    def end(self) -> None:
        raise RuntimeError("no kernel found")


class AbortingOnMisfits(Wrong):
    """Asserts what it should refuse."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        try:
            return honest(*inputs)
        except ValueError:
            os.abort()


class Compiled(Wrong):
    """Compiles once for each operator: here, it counts."""

    mode = "compiled"

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._count = 0

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        traced: list[Any] = []

        def call(*inputs: Any) -> Any:
            if any(isinstance(x, Traced) for x in inputs):
                return function(*inputs)
            if not traced:
                self._count += 1
                traced.append(inputs)
            return self.run(function, traced[0], inputs)

        return call

    def run(self, function: Callable[..., Any], traced: Arrays, inputs: Arrays) -> Any:
        """The compiled code: `traced` are the inputs that it was compiled for."""
        return function(*inputs)

    def compilations(self) -> int | None:
        return self._count

    def reset(self) -> None:
        self._count = 0


class NeverCompiled(Compiled):
    """Falls back to eager in silence."""

    def compilations(self) -> int | None:
        return 0


class WrongWhenCompiled(Compiled):
    def run(self, function: Callable[..., Any], traced: Arrays, inputs: Arrays) -> Any:
        return tuple(y * y.dtype.type(1.001) for y in function(*inputs))


class IntegersOffWhenCompiled(Compiled):
    """Compiled code has sums of products of integers in 8 bits."""

    def run(self, function: Callable[..., Any], traced: Arrays, inputs: Arrays) -> Any:
        ys = function(*inputs)
        return tuple(y.astype("int8").astype(y.dtype) if y.dtype.kind in "iu" else y for y in ys)


class ConstantsFolded(Compiled):
    """The values that it was traced with became constants."""

    def run(self, function: Callable[..., Any], traced: Arrays, inputs: Arrays) -> Any:
        return function(*traced)


class OldShape(Compiled):
    """Code that was compiled for a shape is used for another one."""

    def run(self, function: Callable[..., Any], traced: Arrays, inputs: Arrays) -> Any:
        rows = traced[0].shape[0]
        if inputs[0].shape[0] <= rows:
            return function(*inputs)
        whole = function(*inputs)
        return tuple(np.where(np.arange(len(y)).reshape(-1, *(1,) * (y.ndim - 1)) < rows, y, 0)
                     .astype(y.dtype) for y in whole)  # fmt: skip
