"""A problem of the form that KernelBench has: `Model`, `get_inputs()` and `get_init_inputs()`.

    batch_size, features = 4096, 16384

    class Model(torch.nn.Module): ...
    def get_inputs(): return [torch.rand(batch_size, features)]
    def get_init_inputs(): return []

Its sizes are whole numbers at the top of the file, or in those functions. They are made smaller,
until the reference can run in float64, by halving one after the other as long as the model still
runs; that is tried on the device `meta`, which computes shapes and no numbers.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from d5test.arguments import Mistake
from d5test.modules.reference import Shapes, results_of

SEED = 42
"""Of the initialisation, as KernelBench's own script has it."""
SMALL, LARGE = 1 << 15, 1 << 21
"""Elements of all inputs, parameters and outputs, and of the largest tensor on the way, up to
which sizes are made smaller: for all checks, and for one."""
WORK = 1000
"""Floating-point operations of a pass for each of these elements, likewise."""
MOST, MOST_WORK = 1 << 26, 10**11
"""The same, beyond which nothing is judged."""
LEAST = 8
"""A number that is smaller is no size: a kernel's side, a stride, an axis."""
NEEDED = ("Model", "get_inputs", "get_init_inputs")


@dataclass(frozen=True)
class Cost:
    """What a pass takes: elements that are held, those of the largest tensor, operations."""

    elements: int
    largest: int
    operations: int

    def within(self, elements: int, operations: float) -> bool:
        """Whether it is no more than this."""
        return max(self.elements, self.largest) <= elements and self.operations <= operations


@dataclass(frozen=True)
class Problem:
    """A problem with some of its sizes changed. Raises `Mistake` for a file that is none."""

    path: Path
    changed: tuple[tuple[str, int], ...] = ()

    @cached_property
    def module(self) -> ModuleType:
        """The file, run with these sizes."""
        return loaded(self.path, dict(self.changed))

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The whole numbers that stand at the top of the file, those that are sizes."""
        tree = ast.parse(self.path.read_text(), str(self.path))
        return {name: n.value for name, n in _constants(tree) if n.value >= LEAST}

    def model(self) -> nn.Module:
        """The reference, initialised as it always is."""
        arguments = self.init_inputs()
        torch.manual_seed(SEED)
        model: nn.Module = self.module.Model(*arguments)
        return model

    def init_inputs(self) -> list[Any]:
        """What the model's constructor takes; the same each time."""
        torch.manual_seed(SEED)
        return list(self.module.get_init_inputs())

    def inputs(self, seed: int) -> list[Any]:
        """One set of inputs."""
        torch.manual_seed(seed)
        made = self.module.get_inputs()
        return [made] if isinstance(made, torch.Tensor) else list(made)

    def cost(self) -> Cost:
        """What a pass takes. Raises whatever the model raises."""
        try:
            return self._cost("meta")
        except Exception:  # noqa: BLE001 (what depends on numbers finds none there)
            with torch.device("meta"):
                if (count := sum(x.numel() for x in _tensors(self.inputs(0)))) > MOST:
                    raise Mistake(f"{self.path}: {count:.2g} elements are too many") from None
            return self._cost("cpu")

    def _cost(self, device: str) -> Cost:
        shapes, counter = Shapes(), FlopCounterMode(display=False)
        with torch.device(device):
            model, inputs = self.model(), self.inputs(0)
            with shapes, counter, torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outputs = results_of(model(*inputs))
        held = [*_tensors(inputs), *outputs, *model.parameters()]
        largest = max((torch.Size(shape).numel() for shape in shapes.seen), default=1)
        return Cost(sum(x.numel() for x in held), largest, int(counter.get_total_flops()))

    def smaller(self, elements: int, operations: float | None = None) -> Problem:
        """The problem with sizes halved until a pass takes no more, or none can be any more.

        Raises `Mistake` where it still takes too much for anything.
        """
        operations = WORK * elements if operations is None else operations
        try:
            problem, cost = self, self.cost()
        except Mistake:
            raise
        except (Exception, SystemExit) as error:
            what = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise Mistake(f"{self.path}: the reference does not run: {what}") from error
        values = {**self.sizes, **dict(self.changed)}
        fixed: set[tuple[str, ...]] = set()
        while not cost.within(elements, operations):
            steps = [names for names in _together(values) if names not in fixed]
            if not steps:
                break
            halved = {name: values[name] // 2 for name in steps[0]}
            tried = replace(self, changed=tuple({**values, **halved}.items()))
            try:
                less = tried.cost()
            except Exception:  # noqa: BLE001 (whatever a model says of sizes that do not fit)
                less = cost
            if less == cost:  # it is no size, or does not fit
                fixed.add(steps[0])
                continue
            values |= halved
            problem, cost = tried, less
        if not cost.within(max(MOST, elements), max(MOST_WORK, operations)):
            raise Mistake(
                f"{self.path}: at {problem.described()} a pass takes {cost.elements:.2g} elements "
                f"and {cost.operations:.2g} operations, too much for a reference in float64: name "
                "the sizes at the top of the file as whole numbers, which can be made smaller"
            )
        return problem

    def other(self) -> Problem | None:
        """The problem with one size doubled, or halved; `None` if it runs with none."""
        values = {**self.sizes, **dict(self.changed)}
        for name, n in values.items():
            for size in (2 * n, n // 2):
                tried = replace(self, changed=tuple({**values, name: size}.items()))
                try:
                    cost = tried.cost()
                    if cost != self.cost() and cost.within(LARGE, WORK * LARGE):
                        return tried
                except Exception:  # noqa: BLE001 (as above)
                    continue
        return None

    def odd(self) -> Problem | None:
        """The problem with sizes that no tile divides, odd wherever it runs; `None`: nowhere."""
        problem, cost = self, self.cost()
        for names in _together({**self.sizes, **dict(self.changed)}):
            values = {**self.sizes, **dict(problem.changed)}
            values |= {name: values[name] | 1 for name in names}
            tried = replace(self, changed=tuple(values.items()))
            try:
                more = tried.cost()
            except Exception:  # noqa: BLE001 (as above)
                continue
            if more != cost:  # else it is no size
                problem, cost = tried, more
        return None if problem is self else problem

    def described(self) -> str:
        """The sizes that are not the file's."""
        own = self.sizes
        return ", ".join(f"{k}={v}" for k, v in self.changed if own.get(k) != v) or "its own sizes"


def _together(values: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Which sizes may be halved at once, the largest first: each alone, or all that are equal."""
    steps: list[tuple[str, ...]] = []
    for size in sorted({n for n in values.values() if n >= LEAST}, reverse=True):
        alike = [name for name, n in values.items() if n == size]
        steps += [(name,) for name in alike]
        steps += [tuple(alike)] * (len(alike) > 1)
    return steps


def loaded(path: Path, constants: Mapping[str, int] | None = None) -> ModuleType:
    """A Python file, run; with other numbers in place of those that stand at its top.

    Raises `Mistake` for a file that cannot be read or has no `Model`, `get_inputs` and so on.
    """
    module = ModuleType(f"d5test_problem_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    try:
        tree = ast.parse(path.read_text(), str(path))
        for name, number in _constants(tree):
            if constants and name in constants:
                number.value = constants[name]
        exec(compile(tree, str(path), "exec"), vars(module))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise Mistake(f"{path}: {error}") from None
    except (Exception, SystemExit) as error:
        raise Mistake(f"{path}: {type(error).__name__}: {error}") from error
    if missing := [name for name in NEEDED if not hasattr(module, name)]:
        raise Mistake(
            f"{path} has no {' and no '.join(missing)}: a problem is a class Model, get_inputs() "
            "and get_init_inputs(); see docs/judge.md"
        )
    return module


def _constants(tree: ast.Module) -> Iterator[tuple[str, Any]]:
    """The whole numbers in assignments at the top of a file, by the name that they are part of,
    and those in the functions that make inputs.
    """
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for name, value in _pairs(statement.targets[0], statement.value):
                yield from _numbers(name, value)
        elif isinstance(statement, ast.FunctionDef) and statement.name in NEEDED:
            yield from _numbers(f"{statement.name}()", *statement.body)


def _numbers(name: str, *parts: ast.AST) -> Iterator[tuple[str, Any]]:
    numbers = [
        node
        for part in parts
        for node in ast.walk(part)
        if isinstance(node, ast.Constant) and type(node.value) is int
    ]
    for k, number in enumerate(numbers):
        yield name if len(numbers) == 1 else f"{name}[{k}]", number


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment binds, each with its own value."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=False):
            yield from _pairs(one, part)


def _tensors(inputs: Sequence[Any]) -> list[torch.Tensor]:
    return [x for x in inputs if isinstance(x, torch.Tensor)]
