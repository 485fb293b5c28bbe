"""What `formula` may name, and the operators that it is of."""

from collections.abc import Mapping
from dataclasses import dataclass

from d5test.case import Operator

Table = Mapping[str, Mapping[type[Operator], type[Operator]]]


def mixed(mixin: type, *operators: type[Operator]) -> dict[type[Operator], type[Operator]]:
    """These operators, each with the methods of the mixin, and its documentation."""
    kind, own = dataclass(frozen=True, kw_only=True, repr=False), {"__doc__": mixin.__doc__}
    return {op: kind(type(f"{op.__name__}{mixin.__name__}", (mixin, op), own)) for op in operators}


def joined(*tables: Table) -> Table:
    """One table of several; a formula may be of operators of more than one."""
    every: dict[str, dict[type[Operator], type[Operator]]] = {}
    for table in tables:
        for name, operators in table.items():
            every.setdefault(name, {}).update(operators)
    return every
