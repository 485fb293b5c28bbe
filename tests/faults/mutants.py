"""The mutants of an operator: each is its reference with one change, as the row of a backend."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from hypothesis import Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from d5test.case import Case, Operator
from d5test.exploration.draws import PROFILE, reproducible_draws
from d5test.numerics.bounds import double
from tests.faults import faulty, formulas, source
from tests.faults.faulty import Make

KINDS = ("attribute", "term", "sign", "epsilon", "axis", "number", "element", "zero", "constant",
         "upstream", "precision")  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """`make` takes attributes and returns the operator; making the class is left until then."""

    operator: str
    kind: str
    where: str
    change: str
    make: Callable[[], Make]

    @staticmethod
    def gone() -> Make:
        """In place of `make` where the mutant has been judged elsewhere."""
        raise LookupError("this mutant was made in another process")

    def __str__(self) -> str:
        return f"{self.operator}, {self.where}: {self.change}"


def drawn(strategy: SearchStrategy[Case], count: int) -> tuple[Case, ...]:
    """So many cases, always the same ones."""
    found: list[Case] = []

    @seed(2019)
    @settings(PROFILE, max_examples=count, phases=[Phase.generate])
    @given(strategy)
    def draw(case: Case) -> None:
        found.append(case)

    with reproducible_draws():
        draw()
    return tuple(dict.fromkeys(found))


def mutants(operator: type[Operator], drawn: Sequence[Case]) -> Iterator[Mutant]:
    """Every mutant of an operator, as far as these cases reach its source."""
    yield from _of_attributes(operator, drawn)
    yield from _of_formulas(operator, drawn)
    yield from _of_results(operator, drawn)


def _of_attributes(operator: type[Operator], drawn: Sequence[Case]) -> Iterator[Mutant]:
    parts = ("forward and backward", "backward")
    for name, words, change in faulty.attribute_changes(operator, drawn):
        for part in parts if operator.backward is not Operator.backward else ("forward",):
            make = faulty.with_attribute(operator, part, name, change)
            yield Mutant(operator.__name__, "attribute", part, f"{name}: {words}", _ready(make))


def _of_formulas(operator: type[Operator], drawn: Sequence[Case]) -> Iterator[Mutant]:
    functions = source.executed(lambda: _run(drawn))
    made: set[tuple[Any, ...]] = set()
    for module, name, root, node in source.formulas(operator, functions):
        for path, below in source.descendants(node, root):
            for i, (kind, new) in enumerate(formulas.changes(below)):
                if (module, path, i) in made:
                    continue
                made.add((module, path, i))
                yield Mutant(
                    operator.__name__,
                    kind,
                    f"{name}, {module}.py:{source.line_of(module, path)}",
                    f"{source.text(below)} -> {source.text(new)}",
                    partial(source.changed, operator, module, path, new),
                )


def _run(drawn: Sequence[Case]) -> None:
    for case in drawn:
        with np.errstate(all="ignore"):
            arrays = double(case.arrays())
            outputs = case.op(*arrays)
            if case.op.differentiable:
                case.op.vjp(case.upstream(outputs), arrays, outputs)


def _of_results(operator: type[Operator], drawn: Sequence[Case]) -> Iterator[Mutant]:
    name = operator.__name__
    case = max(drawn, key=lambda case: len(case.inputs))
    with np.errstate(all="ignore"):
        outputs = len(case.op(*double(case.arrays())))
    places = [("forward", k, f"output {k}") for k in range(outputs)]
    if operator.backward is not Operator.backward:
        places += [("backward", k, f"gradient {k}") for k in case.wanted]
    for part, k, result in places:
        for kind, words, change in faulty.CONSTANTS:
            make = faulty.with_results(operator, part, k, change)
            yield Mutant(name, kind, result, words, _ready(make))
    for part in dict.fromkeys(part for part, _, _ in places):
        make = faulty.in_lower_precision(operator, part)
        yield Mutant(name, "precision", part, "in the next lower precision", _ready(make))
    if operator.backward is not Operator.backward:
        for words, other in (("all one", np.ones_like), ("its mean everywhere", _mean)):
            make = faulty.with_upstream(operator, other)
            yield Mutant(name, "upstream", "backward", f"upstream {words}", _ready(make))


def _mean(dy: Any) -> Any:
    return np.full_like(dy, dy.mean()) if dy.size else dy


def _ready(make: Make) -> Callable[[], Make]:
    return lambda: make
