"""A framework of a few functions, whose faults are chosen, and its backend."""

from pathlib import Path
from typing import Any

import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS
from d5test.client.client import WorkerClient
from d5test.outcome.fault import Fault
from d5test.reference.operators import OPERATORS
from tests.reproducer.strangers import run

FRAMEWORK = """
import numpy as np

__version__ = "7"

def threshold(x, least, value):
    kept = np.where(x > least, x, np.float32(value)).astype(x.dtype)
    {wrong}

class Late(np.ndarray):
    def copy(self):
        raise RuntimeError("it is computed only now")

class Threshold:
    def __init__(self, least):
        self.least = least

    def __call__(self, x, value):
        return threshold(x, self.least, value)

class Twice(Threshold):
    def __call__(self, x, value):
        return Threshold(self.least)(threshold(x, self.least, value), value)

cut = threshold

def made(least):
    return Threshold(least)

def maker():
    return lambda *inputs: threshold(*inputs)

def add(x, y):
    return x + {other}

def zeros(shape):
    return np.zeros(shape, np.float32)

def biased(x, least, bias):
    return threshold(x + bias[0], least, 0.0)

def tensor(numbers):
    return np.array(numbers)

def counted(x, least, images):
    return threshold(x, least, 0.0)[: images[0]]

class Graph:
    def __init__(self, least):
        self.least = least

    def run(self, x):
        return threshold(x, self.least, 0.0)

def build(least):
    return Graph(least)

class Layered(Graph):
    def run(self, x):
        return Threshold(self.least)(x, 0.0)

def layered(least):
    return Layered(least)

class Symbol:
    dtype = "float32"

    def __init__(self, compute):
        self.compute = compute

    @property
    def shape(self):
        return Shape()(self)

class Shape:
    def __call__(self, symbol):
        return Symbol(lambda x: x.shape)

class Input:
    def __call__(self):
        return Symbol(lambda x: x)

def later(symbol, least):
    return Symbol(lambda x: threshold(symbol.compute(x), least, 0.0))

class Compiled:
    def __init__(self, symbol):
        self.symbol = symbol

    def __call__(self, x):
        return self.symbol.compute(x)

def pull(x, least, dy):
    return np.where(x > least, dy, 0).astype(x.dtype) * {slope}
"""
BACKEND = """
import numpy as np
import toy
from d5test.backends.base import Backend, Table, Template

rows = Table()
one = toy.Threshold(1.0)

def changed(least):
    layer = toy.Threshold(0.0)
    layer.least = least
    return layer

class Mine:
    def __init__(self, least):
        self.layer = toy.Threshold(least)

    def __call__(self, x, value):
        return self.layer(x, value)

def keep():
    global kept
    kept = toy.maker()
    return kept

@rows.native("ThresholdedRelu")
def thresholded(op, x):
    return {row}

@rows.native("Add")
def add(op, x, y):
    return {add}

class Toy(Backend):
    framework = "toy"
    rows = rows
    version = "7"
    template = Template(
        imports="import toy",
        tensor='np.array({{values}}, "{{dtype}}")',
        array="np.array({{y}}, float)",
        dtype="{{y}}.dtype.name",
        gradient="y = {{call}}\\nresults = [toy.pull({{inputs}}, 1.0, dy)]",
    )

    def put(self, array, dtype, layout="contiguous"):
        return np.array(array)

    def get(self, tensor):
        return tensor.copy(), tensor.dtype.name

    def wait(self, tensors):
        pass

    def vjp(self, function, inputs, grads, wanted):
        return (function(*inputs),), [toy.pull(*inputs, 1.0, grads[0])]
"""
RIGHT = "return kept"
ROW = "toy.threshold(x, op.alpha, 0.0)"
ABORT = '__import__("os").abort()'


class Toy:
    """A framework of one function, its backend, and a case of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(
        self,
        wrong: str = RIGHT,
        slope: float = 1,
        row: str = ROW,
        other: str = "y",
        add: str = "toy.add(x, y)",
    ) -> None:
        """Write the framework and the backend anew."""
        framework = FRAMEWORK.format(wrong=wrong, slope=slope, other=other)
        (self.folder / "toy.py").write_text(framework)
        (self.folder / "backend.py").write_text(BACKEND.format(row=row, add=add))

    def client(self) -> WorkerClient:
        """A worker of the backend."""
        return WorkerClient(f"{self.folder / 'backend.py'}:Toy")

    def case(self) -> Case:
        """A threshold at 1 of two numbers below and four above."""
        x = Tensor((2, 3), data=(0.5, -2.0, 1.5, 3.0, 0.1, 1.25))
        return Case(OPERATORS["ThresholdedRelu"](), (x,), 7)

    def fault(
        self, client: WorkerClient, check: str = "forward", case: Case | None = None
    ) -> Fault:
        """The fault that a check finds, with its calls named."""
        with pytest.raises(Fault) as caught:
            CHECKS[check].run(client, case or self.case())
        caught.value.name_calls(client)
        return caught.value

    def run(self, path: Path) -> Any:
        """A reproducer, that finds the framework by itself."""
        return run(path)
