"""Checks as test functions: `given_cases` draws the cases on which the body of a test runs.

    from d5test.checks import gradient

    @given_cases(gradient)
    def test_gradient(backend, case):
        return gradient(backend, case)

A check of your own is written in the same way, in a file of your own:

    @given_cases(operators=(Relu, Abs, Sign), dtypes=("float32",))
    def test_the_sign_of_the_argument_is_kept(backend, case):
        inquiry = Inquiry("sign", backend, case)
        (result,) = inquiry.ask(inquiry.feed())
        ...

`backend` is a `d5test.client.client.BackendClient`, `case` a `d5test.Case`. The body returns a
`Judgement`, or nothing where it holds; it raises a `Fault`, or fails an assertion.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from d5test.case import Case, Operator
from d5test.checks import CHECKS
from d5test.checks.check import Check
from d5test.client.client import BackendClient
from d5test.numerics.judgement import Judgement
from d5test.outcome.fault import Fault, Subject

Body = Callable[[BackendClient, Case], Judgement | None]


def given_cases(
    like: Callable[..., Judgement] | None = None,
    *,
    operators: tuple[type[Operator], ...] = (),
    **row: Any,
) -> Callable[[Body], Callable[..., None]]:
    """A test that runs its body on drawn cases of each operator and dtype, on each backend.

    like       a check of `d5test.checks`, whose fields hold here where none are given
    operators  classes of operators of which it is asked, subclasses included; none: all
    row        the other fields of `d5test.checks.check.Check`: dtypes, kind, cases, reason, ...
    """

    def decorate(body: Body) -> Callable[..., None]:
        name = body.__name__.removeprefix("test_")
        known = next((check for check in CHECKS.values() if check.run is like), None)
        if like is not None and known is None:
            raise TypeError(f"{like!r} is not a check of d5test.checks")
        if operators:
            row["family"] = operators
        check = replace(known, **row) if known else Check(name, body, **row)  # type: ignore[arg-type]

        def run(backend: BackendClient, case: Case) -> Judgement:
            try:
                judgement = body(backend, case)
            except Fault:
                raise
            except AssertionError as error:
                subject = Subject(check.name, case, backend.about)
                words = str(error).strip().partition("\n")[0] or "the assertion does not hold"
                raise subject.fault("assertion", words) from error
            return Judgement(telling=True) if judgement is None else judgement

        @pytest.mark.check(replace(check, run=run))
        def test(explore: Callable[[], None]) -> None:
            explore()

        for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(test, attribute, getattr(body, attribute))
        return test

    return decorate
