"""Other formulas than ONNX's, as frameworks are known to compute them.

Each is the operator with another forward, or backward. Run on bars it says how far such a
computation may be from its own exact value, whatever the data: that is the error model of an
algorithm. Some are other functions than ONNX's, which a framework is known to compute instead: a
result that is neither is a fault of its own. And some are what a framework documents: a contract.

A module is of the operators of the module of that name in `d5test.reference.operators`.
"""

from dataclasses import fields

from d5test.case import Operator
from d5test.reference.formulas import (
    attention,
    elementwise,
    indexing,
    linear,
    normalisation,
    quantisation,
    recurrent,
    reductions,
    sampling,
    signal,
    types,
    windows,
)
from d5test.reference.formulas.table import joined

FORMULAS = joined(
    attention.FORMULAS,
    elementwise.FORMULAS,
    indexing.FORMULAS,
    linear.FORMULAS,
    normalisation.FORMULAS,
    quantisation.FORMULAS,
    recurrent.FORMULAS,
    reductions.FORMULAS,
    sampling.FORMULAS,
    signal.FORMULAS,
    types.FORMULAS,
    windows.FORMULAS,
)
"""What `formula` may name, and the operators that it is of."""


def computed(op: Operator, formula: str, largest: float) -> Operator:
    """The operator as that formula has it, in numbers up to `largest`; itself if there is none."""
    if not formula:
        return op
    other = FORMULAS[formula][type(op)]
    has = {field.name: getattr(op, field.name) for field in fields(op)} | {"largest": largest}
    return other(**{field.name: has[field.name] for field in fields(other)})
