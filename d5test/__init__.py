"""d5test validates deep-learning software against readable references.

    d5test.check(function, like=Softmax(axis=-1))      in a test of your own
    d5test.check(function, like=formula, inputs=...)    by any formula in NumPy
    d5test.judge(op, inputs, outputs)                   for one call, with the data at hand
    pytest suites/operators --backend=torch             for a whole framework

Importing d5test imports no framework, and nothing at all before it is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d5test.backends.base import Backend, Row, Table, Unsupported
    from d5test.case import Case, Operator, Tensor
    from d5test.formula import Input
    from d5test.front_door import check, judge
    from d5test.strategies import Draw, attributes, inputs

__version__ = "0.1.0"

_HOMES = {
    "d5test.backends.base": ("Backend", "Row", "Table", "Unsupported"),
    "d5test.case": ("Case", "Operator", "Tensor"),
    "d5test.formula": ("Input",),
    "d5test.front_door": ("check", "judge"),
    "d5test.strategies": ("Draw", "attributes", "inputs"),
}

__all__ = [
    "Backend",
    "Case",
    "Draw",
    "Input",
    "Operator",
    "Row",
    "Table",
    "Tensor",
    "Unsupported",
    "attributes",
    "check",
    "inputs",
    "judge",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            globals()[name] = getattr(import_module(home), name)
            return globals()[name]
    raise AttributeError(f"module 'd5test' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
