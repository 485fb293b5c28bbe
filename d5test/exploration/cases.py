"""The cases of a check that a row, or one of its forms, can be asked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis.strategies import SearchStrategy

from d5test.case import Case, Operator, Tensor
from d5test.client.messages import RowInfo
from d5test.known.where import holds
from d5test.reference.operators.broadcasting import Broadcasting


def cases_of(
    check: Any,
    operator: type[Operator],
    dtype: str,
    row: RowInfo | None = None,
    form: str = "",
    **sizes: Any,
) -> SearchStrategy[Case]:
    """The strategy of a check's cases that a row can be asked, perhaps that of a form."""
    only = {"attributes": row.attributes} if row is not None and (form or row.attributes) else {}
    cases: SearchStrategy[Case] = check.cases(operator, dtype, **only, **sizes)
    if row is not None and row.where:
        cases = cases.filter(partial(holds, row.where))
    if row is None or not form:
        return cases
    return cases.map(partial(in_form, name=form, constants=row.constants))


def in_form(case: Case, name: str, constants: Mapping[int, float]) -> Case:
    """The case as a form is asked it, with constant inputs in place of those it does not take.

    Where inputs broadcast, a constant is a scalar: the form cannot know another shape of it.
    """
    scalar = isinstance(case.op, Broadcasting)
    inputs = (
        Tensor(() if scalar else t.shape, case.dtype, ("constant", constants[i]))
        if t is not None and i in constants
        else t
        for i, t in enumerate(case.inputs)
    )
    return replace(case, inputs=tuple(inputs), form=name)


def evenly(cases: Sequence[Case], most: int | None) -> Sequence[Case]:
    """At most so many of the cases, from all over the list; all of them without a number."""
    if most is None or most >= len(cases):
        return cases
    return [cases[i * len(cases) // most] for i in range(most)]
