"""All checks on one operator of one backend, as the suites run them: what they find."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from d5test.backends.base import Unsupported
from d5test.case import Operator
from d5test.checks import CHECKS, Check, Fault
from d5test.client.messages import RowInfo
from d5test.exploration.cases import cases_of
from d5test.numerics.judgement import Judgement
from d5test.outcome.tally import Inapplicable
from d5test.strategies.upstream import Upstreams
from tests.faults.mutants import drawn

Form = tuple[str, RowInfo] | None
BY_DEFAULT = tuple(name for name, check in CHECKS.items() if not check.sizes)
"""Checks that are made without being asked for: not that of real problems at their full size."""
COUNT = 12
"""Cases of each check and dtype."""


def asked(
    client: Any, operator: type[Operator], names: Iterable[str]
) -> Iterator[tuple[Check, str, Form]]:
    """The checks that are meant for this backend, each with its dtypes and forms."""
    for name in names:
        check = CHECKS[name]
        if client.about.mode not in check.modes:
            continue
        if not issubclass(operator, check.family):
            continue
        forms: Iterable[Form] = (None,)
        if check.forms:
            forms = client.about.forms.get(operator.__name__, {}).items()
        for dtype, form in product(check.dtypes, forms):
            declared = form is None or dtype in form[1].dtypes
            if declared and not check.reason(operator, client.about, dtype):
                yield check, dtype, form


def judgements(
    client: Any,
    operator: type[Operator],
    check: Check,
    dtype: str,
    count: int,
    form: Form = None,
) -> Iterator[Judgement]:
    """Of each case that can be judged. Raises the first fault."""
    if check.every is not None:
        cases = check.every(operator, dtype)
    else:
        name, row = form or ("", client.about.rows.get(operator.__name__))
        strategy = cases_of(check, operator, dtype, row, name)
        cases = drawn(strategy, min(count, check.draws or count))
    upstreams = Upstreams(0, dtype)
    for case in cases:
        try:
            yield check.run(client, upstreams.given(case, fresh=check.upstream))
        except (Inapplicable, Unsupported):
            continue


def findings(
    client: Any, operator: type[Operator], names: Iterable[str] = BY_DEFAULT, count: int = COUNT
) -> Mapping[str, Fault]:
    """The first fault that each check finds."""
    found: dict[str, Fault] = {}
    for check, dtype, form in asked(client, operator, names):
        if check.name in found:
            continue
        try:
            for _ in judgements(client, operator, check, dtype, count, form):
                pass
        except Fault as fault:
            found[check.name] = fault
    return found
