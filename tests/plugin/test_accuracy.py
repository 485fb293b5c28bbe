"""Accuracy in a run of the suite: measured on all inputs, known failures included, and printed."""

import json
import re
from collections.abc import Callable
from math import inf, tanh
from types import SimpleNamespace
from typing import Any

import pytest

from d5test.accuracy import Accuracy, Grade
from d5test.checks import CHECKS, Check
from d5test.exploration.explore import Exploration
from d5test.outcome.tally import Tally
from d5test.plugin.outcomes import attach, tallies_of
from d5test.reference.operators import OPERATORS
from tests.faults.score import Local
from tests.faults.wrong_functions import OneOfAll

Suite = Callable[..., Any]
Tanh = OPERATORS["Tanh"]

CHOPPED = """
import numpy as np
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy


def chopped(op, x):
    y = np.tanh(x.astype(np.float64)).astype(x.dtype)
    return np.where(np.abs(x) > 4, np.sign(x), y).astype(x.dtype)


class Chopped(Numpy):
    framework = "chopped"
    rows = {"Tanh": Row(chopped, gradient="not here")}
"""

FORMS = """
import numpy as np
from scipy.special import erf, erfc
from d5test.backends.base import Row, Unsupported
from d5test.backends.numpy import Numpy


def row(function):
    def call(op, x):
        if getattr(op, "approximate", "none") == "tanh":
            raise Unsupported("not here")
        with np.errstate(all="ignore"):
            return function(x.astype(np.float32)).astype(x.dtype)
    return Row(call, gradient="not here", arithmetic="F")


class Naive(Numpy):
    framework = "naive"
    rows = {
        "Gelu": row(lambda x: x / 2 * (1 + erf(x / np.sqrt(np.float32(2))))),
        "Softplus": row(lambda x: np.log(1 + np.exp(x))),
    }


class Stable(Numpy):
    framework = "stable"
    rows = {
        "Gelu": row(lambda x: x / 2 * erfc(-x / np.sqrt(np.float32(2)))),
        "Softplus": row(lambda x: np.logaddexp(x, 0)),
    }
"""

KNOWN = """
[[known]]
checks = ["accuracy"]
operators = ["Tanh"]
dtypes = ["float32"]
cases = ["Case(Tanh(), (Tensor((4,), data=(4.5, 5.0, -6.0, 7.0)),))"]
reason = "1 from 4 on"
owner = "somebody"
expires = 2999-01-31
where = { largest0 = { min = 4 }, smallest0 = { max = 9 } }
"""


def test_known_failures_are_measured_too(suite: Suite, pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("chopped.py").write_text(CHOPPED)
    pytester.path.joinpath("known.toml").write_text(KNOWN)
    options = ("--backend=./chopped.py:Chopped", "--check=accuracy", "--dtype=float32")
    found = suite("", *options)
    assert found.rc == 1
    cell = found.tallies["./chopped.py:Chopped", "accuracy", "Tanh", "float32"]
    assert [fault["kind"] for fault in cell.faults] == ["value"]
    assert re.search(r"input +-?4\.\d+", found.text)
    assert re.search(r"largest +\S+ ULPs, at", found.text)
    known = suite("", *options, "--known=known.toml")
    assert known.rc == 0, known.text
    covered = known.tallies["./chopped.py:Chopped", "accuracy", "Tanh", "float32"]
    assert covered.known > 0
    assert covered.right > 10 * covered.known
    assert covered.accuracy == cell.accuracy
    measured = covered.accuracy["Tanh()"]
    (at,) = measured.at
    assert 4 <= abs(at) < 4.1
    assert measured.largest == pytest.approx((1 - tanh(abs(at))) * 2**24)
    assert 0.9 < (measured.share_rounded or 0) < 1
    line = next(s for s in known.text.splitlines() if s.startswith("  chopped.py:Chopped float"))
    assert re.fullmatch(r"  \S+ float32: 1\.11e\+04 Tanh\(\) at -?4\.\d+; 99\.\d%", line)


@pytest.mark.parametrize("name", ["Naive", "Stable"])
def test_a_naive_function_is_graded_and_no_fault(
    suite: Suite, pytester: pytest.Pytester, name: str
) -> None:
    pytester.path.joinpath("forms.py").write_text(FORMS)
    backend = f"./forms.py:{name}"
    found = suite(
        "", f"--backend={backend}", "--check=accuracy", "--dtype=float32", "--dtype=bfloat16"
    )
    assert found.rc == 0, found.text
    said = found.text.partition("stable or naive formula?")[2]
    for dtype in ("float32", "bfloat16"):
        for function in ("Gelu()", "Softplus()"):
            cell = found.tallies[backend, "accuracy", function[:-2], dtype]
            assert cell.fault == 0
            assert cell.grades[function].name == name.lower()
        (line,) = (s for s in said.splitlines() if s.startswith(f"  forms.py:{name} {dtype} "))
        number = r" \S+ at -?\d+\.?\d*" if name == "Naive" else ""
        found_both = rf"(?=.*Gelu\(\){number})(?=.*Softplus\(\){number})"
        assert re.search(rf" {dtype} {name.lower()}: 2  {found_both}", line), line


def exploration(check: Check, tally: Tally, **more: Any) -> Exploration:
    """The cell of a hyperbolic tangent that is wrong in one number."""
    client = Local("wrong", OneOfAll())
    return Exploration(client, check, Tanh, "float16", tally, 1, lambda case: False, **more)


def test_each_fault_is_the_worst_of_its_kind() -> None:
    check, tally = CHECKS["accuracy"], Tally("wrong", "accuracy", "Tanh", "float16")
    cases = CHECKS["accuracy"].every(Tanh, "float16")
    (fault,) = exploration(check, tally).worst(cases)
    assert fault.details["input"] == "0.4375"
    assert tally.right == len(cases) - 1
    assert tally.accuracy["Tanh()"].at == (0.4375,)
    assert tally.accuracy["Tanh()"].inputs == 2**16 - 2046


def test_a_budget_is_kept() -> None:
    check, tally = CHECKS["accuracy"], Tally("wrong", "accuracy", "Tanh", "float16")
    cases = CHECKS["accuracy"].every(Tanh, "float16")
    assert exploration(check, tally, until=0.0).worst(cases) == []
    assert tally.left_out
    assert not tally.drawn


def test_accuracy_travels_in_a_report() -> None:
    tally = Tally("torch", "accuracy", "Erf", "float64")
    tally.accuracy["Erf()"] = Accuracy(3, inf, (1e200,), 0.0, 1.0, 2.5, None)
    tally.grades["Gelu()"] = Grade(inf, (-5.5,), True)
    node = SimpleNamespace(user_properties=[])
    attach(node, [tally])
    ((_, text),) = node.user_properties
    assert json.loads(text)
    (back,) = tallies_of([SimpleNamespace(when="call", user_properties=node.user_properties)])
    assert back == tally
