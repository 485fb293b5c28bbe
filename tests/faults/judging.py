"""All checks on one operator of one backend, as the suites run them: what they find."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from d5test.backends.base import Unsupported
from d5test.case import Operator
from d5test.checks import CHECKS, Check, Fault
from d5test.numerics.judgement import Judgement
from d5test.outcome.tally import Inapplicable
from tests.faults.mutants import drawn

COUNT = 12
"""Cases of each check and dtype."""


def asked(
    client: Any, operator: type[Operator], names: Iterable[str]
) -> Iterator[tuple[Check, str]]:
    """The checks that are meant for this backend, each with its dtypes.

    A compiled backend is asked everything.
    """
    for name in names:
        check = CHECKS[name]
        if client.about.mode not in (*check.modes, "compiled"):
            continue
        if not issubclass(operator, check.family):
            continue
        for dtype in check.dtypes:
            if not check.reason(operator, client.about, dtype):
                yield check, dtype


def judgements(
    client: Any, operator: type[Operator], check: Check, dtype: str, count: int
) -> Iterator[Judgement]:
    """Of each case that can be judged. Raises the first fault."""
    if check.every is not None:
        cases = check.every(operator, dtype)
    else:
        cases = drawn(check.cases(operator, dtype), min(count, check.draws or count))
    for case in cases:
        try:
            yield check.run(client, case)
        except (Inapplicable, Unsupported):
            continue


def findings(
    client: Any, operator: type[Operator], names: Iterable[str] = tuple(CHECKS), count: int = COUNT
) -> Mapping[str, Fault]:
    """The first fault that each check finds."""
    found: dict[str, Fault] = {}
    for check, dtype in asked(client, operator, names):
        if check.name in found:
            continue
        try:
            for _ in judgements(client, operator, check, dtype, count):
                pass
        except Fault as fault:
            found[check.name] = fault
    return found
