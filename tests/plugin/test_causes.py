"""Faults of one cause are told once, and accuse whose code it is."""

import math
import operator
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from d5test.case import Case, Tensor
from d5test.client.messages import Feed
from d5test.outcome.fault import AT, Evidence, Fault, kind_of_fault
from d5test.outcome.tally import Tally
from d5test.plugin.summary import CAUSES, fault_lines, verdict
from d5test.reference.operators import OPERATORS
from d5test.worker.own_code import place_in_own_code
from tests.plugin.conftest import TINY, Suite

MISTAKE = next(k for k, line in enumerate(TINY.splitlines(), 1) if "map(up" in line)


def test_a_mistake_in_the_backends_vjp_is_its_own(suite: Suite) -> None:
    ran = suite("Mistaken", "--check=gradient,determinism", "--examples=3")
    assert ran.rc == pytest.ExitCode.TESTS_FAILED
    assert "6 faults of 1 cause" in ran.text
    assert f"Relu(): the backend's vjp raised TypeError at tiny.py:{MISTAKE} on " in ran.text
    assert "should raise Unsupported" not in ran.text


def test_a_row_that_raises_by_itself_is_told_how_to_refuse(suite: Suite) -> None:
    ran = suite("Unwritten", "--check=forward", "--operator=Relu", "--examples=3")
    assert "Relu(): the backend's row raised NotImplementedError at tiny.py:" in ran.text
    assert "raise Unsupported in the row, leave the dtype out of its dtypes=, or" in ran.text


def test_one_mistake_of_all_rows_is_one_cause(suite: Suite) -> None:
    ran = suite("Scalars", "--check=forward,declared_dtypes", "--examples=3")
    assert " of 1 cause on " in ran.text
    assert "a builtins.float was returned as output 0, not a numpy.ndarray" in ran.text
    assert "valid inputs raise an exception" not in ran.text


def test_an_attribute_that_an_operator_lacks_is_the_rows_mistake(suite: Suite) -> None:
    checks = "--check=forward,invalid_arguments"
    ran = suite("Lacking", checks, "--operator=Relu,Gather", "--examples=3")
    assert "5 faults of 2 causes" in ran.text  # no refusal of invalid arguments
    assert "Relu(): the backend's row raised AttributeError at tiny.py:" in ran.text
    assert "Relu has no attribute 'slope' (it has: none)" in ran.text
    assert "Gather has no attribute 'axes' (it has: axis)" in ran.text
    assert "it says gone" not in ran.text
    # the first test of each has all that is known; the others name it
    assert ran.text.count("Relu has no attribute 'slope'") == 1
    assert ran.text.count("  as in test_forward[./tiny.py:Lacking-") == 3
    assert len(re.findall(r"^fault \d: as fault \d \(", ran.text, re.MULTILINE)) == 3


def test_what_put_raises_accuses_no_function_and_tells_the_layout(suite: Suite) -> None:
    ran = suite("Strided", "--check=layout", "--operator=Relu", "--examples=3")
    assert "Relu(): the backend's put raised ValueError at tiny.py:" in ran.text
    assert re.search(r"inputs +float32 \(2,\) transposed", ran.text)


def test_a_framework_that_raises_in_put_accuses_no_function() -> None:
    case = Case(OPERATORS["Relu"](), (Tensor((2,)),))
    fault = kind_of_fault("exception")("layout", case, "", {AT: "put: ValueError"})
    fault.name_calls(None)  # nothing is recorded
    assert fault.cause == "put: ValueError"


@pytest.mark.parametrize(
    ("one", "other"),
    [("() of a scalar", "(2,3) of a scalar"), ("shape (2,)", "shape (5, 7)"), ("[3]", "[]")],
)
def test_shapes_make_no_cause_of_their_own(one: str, other: str) -> None:
    case = Case(OPERATORS["Relu"](), (Tensor((2,)),))
    fault = kind_of_fault("exception")
    causes = {fault("gradient", case, "", {"raised": f"E: {x}\nf(x)"}).cause for x in (one, other)}
    assert len(causes) == 1


def test_a_traceback_makes_no_cause() -> None:
    case = Case(OPERATORS["Relu"](), (Tensor((2,)),))
    fault = kind_of_fault("exception")
    trace = 'File "model.py", line 3, in compile\n  build(x)'
    said = ("E: at 7\nno kernel", "E: at 8\nno axis", "E: at 9\nno axis")
    causes = [fault("forward", case, "", {"raised": f"{text}\n{trace}"}).cause for text in said]
    assert causes == ["raised: E: at N no kernel", "raised: E: at N no axis", causes[1]]


def test_what_differs_between_the_first_line_and_the_last_is_another_cause() -> None:
    case = Case(OPERATORS["Relu"](), (Tensor((2,)),))
    fault = kind_of_fault("exception")
    said = ("E in core.cpp:3:\nno axis\nsorry", "E in core.cpp:3:\nno kernel\nsorry")
    one, other = (fault("forward", case, "", {"raised": text}).cause for text in said)
    assert one != other


def death(operator: str, how: str, shape: tuple[int, ...] = (2,), **other: str) -> Fault:
    """A process that ended in this way, or an answer that did not come."""
    op: Any = SimpleNamespace(name=operator)
    case = Case(op, (Tensor(shape),))
    kind, check = other.get("kind", "crash"), other.get("check", "degenerate")
    evidence = Evidence((Feed(case.arrays()),), "returns")
    text = f"{operator}() by tiny.f as its row calls it: the process died on tiny 7 (cpu, eager)"
    return kind_of_fault(kind)(check, case, text, {"how": how}, None, evidence)


SEGV, FPE = (f"the process ended: {signal}\nlast words" for signal in ("SIGSEGV", "SIGFPE"))
DEATHS = [
    (death("Relu", SEGV), death("Relu", SEGV, check="forward"), True),
    (death("Relu", SEGV), death("Relu", FPE), False),
    (death("Relu", SEGV), death("Exp", SEGV), False),
    (death("Relu", SEGV, (0,)), death("Exp", SEGV, (0, 3)), True),
    (death("Relu", SEGV, (0,)), death("Relu", FPE, (0,)), False),
    (death("Relu", SEGV, (0,)), death("Relu", SEGV), False),
    (death("Relu", SEGV, (0,), check="forward"), death("Exp", SEGV, (0,)), False),
    (
        death("Relu", "no answer within 60 s", kind="hang"),
        death("Relu", "no answer within 3 s, less than usual", kind="hang"),
        True,
    ),
]


@pytest.mark.parametrize(("one", "other", "alike"), DEATHS)
def test_deaths_of_one_cause(one: Fault, other: Fault, alike: bool) -> None:
    assert (one.cause == other.cause) == alike


def test_deaths_on_empty_tensors_leave_room_for_other_causes() -> None:
    names = list(OPERATORS)[: 2 * CAUSES - 1]
    tallies = [Tally("tiny", "degenerate", name, "float32") for name in names]
    for k, tally in enumerate(tallies):
        tally.count_fault(death(tally.operator, FPE, (0,) if k < CAUSES else (2,)))
    told = [line.strip() for line in fault_lines(tallies)]
    assert told[:2] == [
        f"{CAUSES} operators: the process died (SIGFPE) on empty tensors, "
        f"as in {names[0]}() by tiny.f on tiny 7 (cpu, eager)",
        f"{CAUSES} faults: {', '.join(sorted(names[:CAUSES]))}; degenerate; float32",
    ]
    for name in names[CAUSES:]:
        assert f"1 fault: {name}; degenerate; float32" in told


TABLE = {"root": math.sqrt}
EXPRESSIONS: dict[str, Callable[[Any], Any]] = {
    "a function in C": lambda x: math.sqrt(x),
    "one of a table": lambda x: TABLE["root"](x),
    "a tensor's": lambda x: len(str(x)) + operator.neg(SimpleNamespace()),  # type: ignore[operator]
}


@pytest.mark.parametrize("name", EXPRESSIONS)
@pytest.mark.parametrize("framework", ["math", "types", "toy"])
def test_what_a_framework_may_have_raised_in_c_is_not_called_own(
    name: str, framework: str
) -> None:
    backend = type("Mine", (), {"framework": framework, "__module__": __name__})()
    try:
        EXPRESSIONS[name](-1.0)
    except (ValueError, TypeError) as error:
        place = place_in_own_code(error.__traceback__, backend)
    concerned = framework == ("types" if name == "a tensor's" else "math")
    assert bool(place) == (not concerned)


def test_no_run_in_which_a_test_failed_is_said_to_have_passed() -> None:
    tallies = [Tally("tiny", "forward", "Relu", "float32", "7", right=3)]
    assert verdict(tallies).startswith("PASSED: 3 cases were right")
    assert verdict(tallies, failed=1).startswith("FAILED: 1 test failed, though no result was ")
    gone = verdict(tallies, failed=2, unconfirmed=["known failure is gone (a.toml, row 2)"])
    assert gone == "FAILED: known failure is gone (a.toml, row 2); 3 cases were right on tiny 7"
