"""d5test validates deep-learning software against readable references.

    d5test.check(function, like=Softmax(axis=-1))      in a test of your own
    d5test.judge(op, inputs, outputs)                   for one call, with the data at hand
    pytest suites/operators --backend=torch             for a whole framework

Importing d5test imports no framework, and nothing at all before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d5test.backends.base import Backend, Row, Table, Unsupported
    from d5test.case import Case, Operator, Tensor
    from d5test.front_door import check, judge
    from d5test.strategies import Draw, attributes, inputs

__version__ = "0.1.0"

_HOMES = {
    "check": "d5test.front_door",
    "judge": "d5test.front_door",
    "Operator": "d5test.case",
    "Case": "d5test.case",
    "Tensor": "d5test.case",
    "Backend": "d5test.backends.base",
    "Row": "d5test.backends.base",
    "Table": "d5test.backends.base",
    "Unsupported": "d5test.backends.base",
    "Draw": "d5test.strategies",
    "attributes": "d5test.strategies",
    "inputs": "d5test.strategies",
}

__all__ = [
    "Backend",
    "Case",
    "Draw",
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
    if name not in _HOMES:
        raise AttributeError(f"module 'd5test' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
