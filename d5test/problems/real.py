"""The problems that are solved in practice, DeepBench's and those of networks, by operator."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from types import MappingProxyType
from typing import Any

from d5test.case import Case, Operator
from d5test.problems import Problem
from d5test.problems.deepbench import deepbench
from d5test.problems.networks import networks
from d5test.problems.scaling import scaled
from d5test.strategies.registry import FREE

NEUTRAL = {"dilations": {1}, "pads": {0}, "strides": {1}}
"""What an attribute along axes says if it is left out."""


def real_problems(operator: type[Operator]) -> tuple[Problem, ...]:
    """Those of an operator at their full size, each once, alike ones beside each other."""
    return _by_operator().get(operator, ())


def small_problems(
    op: Operator | type[Operator],
    attributes: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> tuple[Case, ...]:
    """Those of an operator scaled down, each once, alike ones beside each other.

    Only those whose attributes are those of an operator that is given, and whose attributes have
    values that `attributes` allows.
    """
    operator: Any = op if isinstance(op, type) else type(op)
    return tuple(
        case
        for case in _scaled(operator)
        if (isinstance(op, type) or _is_of(case.op, op))
        and all(
            name in FREE or getattr(case.op, name) in values for name, values in attributes.items()
        )
    )


@cache
def _by_operator() -> Mapping[type[Operator], tuple[Problem, ...]]:
    problems: dict[Any, Problem] = {}
    for problem in (*networks(), *deepbench()):
        problems.setdefault(_key(problem.case), problem)
    found = defaultdict(list)
    for problem in sorted(problems.values(), key=lambda p: _order(p.case)):
        found[type(problem.case.op)].append(problem)
    return {operator: tuple(alike) for operator, alike in found.items()}


@cache
def _scaled(operator: type[Operator]) -> tuple[Case, ...]:
    every = (scaled(problem.case) for problem in real_problems(operator))
    return tuple(sorted(dict.fromkeys(small for small in every if small), key=_order))


def _order(case: Case) -> tuple[str, str]:
    """By which alike cases stand beside each other."""
    return repr(case.op), repr(case.shapes)


def _key(case: Case) -> tuple[Any, ...]:
    """What two problems have in common that differ in a bias alone, or in what is said of it."""
    op = [_said(case.op, f.name) for f in fields(case.op) if f.name not in FREE]
    return (case.op.name, *op, *(shape for shape in case.shapes if len(shape or ()) > 1))


def _said(op: Operator, name: str) -> Any:
    """The value of an attribute, `None` where it says what it says if it is left out."""
    value = getattr(op, name)
    return None if name in NEUTRAL and value and set(value) <= NEUTRAL[name] else value


def _is_of(problem: Operator, op: Operator) -> bool:
    """Whether a problem may be one of `op`: of no other attributes, but for `FREE` ones."""
    return all(
        _said(problem, f.name) == _said(op, f.name)
        for f in fields(op)
        if f.name not in FREE and not (f.name == "kernel_shape" and getattr(op, f.name) is None)
    )
