"""Which cases a known failure covers: conditions on a case's fields, never evaluated code.

A field is an attribute of the operator (`axis`), or a property of an input by its position:
`shape0`, `rank0`, `size0`, `dtype0`, `regime0`, `layout0`, `present0`, `smallest0` and `largest0`
(the extremes of its magnitudes, zeros left out), `subnormal0` (whether one of them is); or
`inputs`, their number; `form`, the name of the form that is asked, empty for the row; or `dy`, the
regime of the upstream gradients; or `alone`, the one input whose gradient is asked for.
`"strides[0]"` and `"shape1[-1]"` are one entry of a tuple. `[*]` is the same axis in all fields of
a table that have it, counted from the last; the conditions hold if they do for some axis.
A condition is

    a value                         equal to it (a tuple to a list)
    a list of values                one of them
    {min = 2, max = 5, not = 3}     in the range, and not that value (or none of a list of them)
    {below = ["shape1[-2]"]}        a whole number below the sum of these fields (0 if absent)
    {odd = true}                    an odd number

On a tuple, a range or a single number holds if it holds for some entry. All conditions of a table
must hold; the empty table holds for every case.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from d5test.case import Case, Operator, Tensor, dtype_of
from d5test.values import finfo

FIELD = re.compile(
    r"(?P<name>[A-Za-z_]\w*?)(?P<position>\d{1,3})?(?:\[(?P<index>-?\d{1,3}|\*)\])?"
)
AXES = 8
"""Axes that `[*]` may be; no case has more."""
INPUTS: Mapping[str, Any] = {
    "shape": lambda tensor: tensor.shape,
    "rank": lambda tensor: len(tensor.shape),
    "size": lambda tensor: math.prod(tensor.shape),
    "dtype": lambda tensor: tensor.dtype,
    "regime": lambda tensor: tensor.values[0] if tensor.data is None else "data",
    "layout": lambda tensor: tensor.layout,
}
OF_INPUTS = (*INPUTS, "smallest", "largest", "subnormal", "present")
COUNT, FORM, UPSTREAM, ALONE = "inputs", "form", "dy", "alone"


class Absent:
    """The value of a field that a case does not have. No condition holds for it."""


def validate(where: Mapping[str, Any], operator: type[Operator]) -> None:
    """Raise ValueError with the reason if a condition can never be evaluated."""
    attributes = [f.name for f in fields(operator)]
    for name, condition in where.items():
        match = FIELD.fullmatch(name)
        known = OF_INPUTS if match and match["position"] else (COUNT, FORM, UPSTREAM, ALONE)
        if match is None or not (name.partition("[")[0] in attributes or match["name"] in known):
            raise ValueError(
                f"where: {name!r} is not an attribute of {operator.__name__} "
                f"({', '.join(attributes) or 'it has none'}), nor one of "
                f"{', '.join(f'{field}0' for field in OF_INPUTS)}, {COUNT}, {FORM}, "
                f"{UPSTREAM}, {ALONE}"
            )
        _require_condition(name, condition)
        if isinstance(condition, dict) and "below" in condition:
            validate(dict.fromkeys(condition["below"], 0), operator)


def _require_condition(name: str, condition: Any) -> None:
    if not isinstance(condition, dict):
        if not _plain(condition):
            raise ValueError(f"where: {name!r} takes values and lists, not {condition!r:.60}")
        return
    if not condition or set(condition) - set(BOUNDS):
        raise ValueError(
            f"where: {name!r} takes {', '.join(BOUNDS)}, not {', '.join(condition) or '{}'}"
        )
    for bound, value in condition.items():
        good, wanted = BOUNDS[bound]
        if not good(value):
            raise ValueError(f"where: {bound} of {name!r} should be {wanted}, not {value!r:.60}")


def _plain(value: Any) -> bool:
    """Whether it is a text, a number, a boolean, or a list of such and of lists of them."""
    if isinstance(value, list):
        return all(map(_plain, value))
    return isinstance(value, str | int | float)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, str) for entry in value)


BOUNDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "min": (_number, "a number"),
    "max": (_number, "a number"),
    "not": (_plain, "a value or a list"),
    "below": (_texts, 'a list of fields, ["shape0[0]"]'),
    "odd": (lambda value: value is True, "true"),
}


def holds(where: Mapping[str, Any], case: Case) -> bool:
    """Whether every condition holds for this case."""
    if any("[*]" in name for name in where):
        axes = [f"[-{axis}]" for axis in range(1, AXES + 1)]  # counted from the last
        tables = [{n.replace("[*]", at): _along(c, at) for n, c in where.items()} for at in axes]
        return any(holds(table, case) for table in tables)
    return all(
        _meets(value_of(name, case), _resolved(condition, case))
        for name, condition in where.items()
    )


def _along(condition: Any, at: str) -> Any:
    """The condition with the fields in `below` at this axis."""
    if not isinstance(condition, dict) or "below" not in condition:
        return condition
    return condition | {"below": [name.replace("[*]", at) for name in condition["below"]]}


def _resolved(condition: Any, case: Case) -> Any:
    """The condition with the fields in `below` replaced by the largest number allowed."""
    if not isinstance(condition, dict) or "below" not in condition:
        return condition
    values = (value_of(name, case) for name in condition["below"])
    limit = sum(value for value in values if isinstance(value, int | float)) - 1
    rest = {name: bound for name, bound in condition.items() if name != "below"}
    return {**rest, "max": min(limit, rest.get("max", limit))}


def value_of(name: str, case: Case) -> Any:
    """The value of a field; `Absent` if this case has no such field."""
    match = FIELD.fullmatch(name)
    if match is None:
        return Absent
    whole = name.partition("[")[0]
    if whole in {f.name for f in fields(case.op)}:
        value = getattr(case.op, whole)
    elif whole == COUNT:
        value = len(case.inputs)
    elif whole == FORM:
        value = case.form
    elif whole == UPSTREAM:
        value = case.dy[0]
    elif whole == ALONE:
        value = case.alone
    else:
        value = _of_input(match["name"], int(match["position"]), case)
    if match["index"] is None or value is Absent:
        return value
    index = int(match["index"])
    if not isinstance(value, tuple) or not -len(value) <= index < len(value):
        return Absent
    return value[index]


def _of_input(name: str, position: int, case: Case) -> Any:
    tensor: Tensor | None = case.inputs[position] if position < len(case.inputs) else None
    if name == "present":
        return tensor is not None
    if tensor is None:
        return Absent
    if name in INPUTS:
        return INPUTS[name](tensor)
    with np.errstate(invalid="ignore"):  # NaNs, of any bits
        values = np.abs(np.asarray(case.arrays()[position]).astype(np.float64))
    magnitudes = values[(values > 0) & np.isfinite(values)]
    if name == "subnormal":
        return bool((magnitudes < finfo(dtype_of(tensor.dtype)).smallest_normal).any())
    if not magnitudes.size:
        return Absent
    return float(magnitudes.min() if name == "smallest" else magnitudes.max())


def _meets(value: Any, condition: Any) -> bool:
    if value is Absent:
        return False
    if isinstance(condition, dict):
        entries = value if isinstance(value, tuple) else (value,)
        return any(_within(entry, condition) for entry in entries)
    if isinstance(condition, list):
        return _same(value, condition) or any(_meets(value, entry) for entry in condition)
    if isinstance(value, tuple):
        return any(_same(entry, condition) for entry in value)
    return _same(value, condition)


def _within(value: Any, bounds: Mapping[str, Any]) -> bool:
    if value is None:
        return False
    unwanted = bounds.get("not", [])
    unwanted = unwanted if isinstance(unwanted, list) else [unwanted]
    if any(_same(value, entry) for entry in unwanted):
        return False
    if ("min" in bounds or "max" in bounds) and isinstance(value, str):
        return False
    if "odd" in bounds and not (isinstance(value, int) and value % 2):
        return False
    return bool(bounds.get("min", value) <= value <= bounds.get("max", value))


def _same(value: Any, expected: Any) -> bool:
    if isinstance(value, tuple) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(_same, value, expected))
    return bool(value == expected)
