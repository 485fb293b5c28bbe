"""The suite, run on backends of a few lines: what it says, and with which exit status."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from d5test.known.reading import shipped
from tests.nightly import thinned
from tests.reproducer.strangers import run

SUITES = shipped("torch").parents[1]
Suite = Callable[..., Any]
FORWARD = ("--check=forward", "--operator=Relu,Softmax")


def test_a_right_backend(suite: Suite, pytester: pytest.Pytester) -> None:
    ran = suite("Tiny", "--check=forward,gradient", "-v")
    assert ran.rc == 0, ran.text
    assert (
        "operators/test_forward.py::test_forward[./tiny.py:Tiny-Relu-float32] PASSED" in ran.text
    )
    cell = ran.tallies["./tiny.py:Tiny", "gradient", "Softmax", "float32"]
    assert cell.right >= 25
    assert cell.telling >= 15
    assert 0 < cell.worst <= 1
    lacking = ran.tallies["./tiny.py:Tiny", "forward", "Gelu", "float32"]
    assert (lacking.unsupported, lacking.right) == (1, 0)
    assert re.search(r"\d+  for \d+ other reasons|has no row for Gelu", ran.text)
    assert not (pytester.path / ".d5test").exists()


def test_checks_that_share_compiled_shapes_follow_one_another(suite: Suite) -> None:
    ran = suite("Building", "--check=forward,gradient", "--dtype=float32", "-v")
    tests = re.findall(r"::test_(\w+)\[\./tiny\.py:Building-(\w+)-float32\] PASSED", ran.text)
    assert tests == [(c, op) for op in ("Relu", "Softmax") for c in ("forward", "gradient")]
    ran = suite("Building", "--check=forward,gradient", "--operator=Relu,Softmax")
    assert "test_forward.py" not in ran.text  # nor a line for each change of files


@pytest.mark.nightly
def test_xdist_counts_the_same(suite: Suite) -> None:
    pytest.importorskip("xdist")
    options = ("--operator=Relu,Softmax", "--check=forward,special", "--examples=8")
    alone, spread = suite("Wrong", *options), suite("Wrong", *options, "-n2")
    assert alone.rc == spread.rc == 1
    assert alone.counts() == spread.counts()
    assert len(alone.counts()) == 10  # special is asked in 16 bits, too
    first, second = (ran.text[ran.text.index("right  fault") :] for ran in (alone, spread))
    assert first.partition("\n====")[0] == second.partition("\n====")[0]


def test_a_fault_is_its_message_and_a_reproducer_of_each_kind(
    suite: Suite, pytester: pytest.Pytester
) -> None:
    ran = suite("Wrong", *FORWARD, "--dtype=float32")
    assert ran.rc == 1
    cell = ran.tallies["./tiny.py:Wrong", "forward", "Relu", "float32"]
    kinds = {fault["kind"]: fault for fault in cell.faults}
    assert set(kinds) == {"shape", "value"}
    assert "Tensor((4, 1)" in kinds["shape"]["case"] or "Tensor((4, 2)" in kinds["shape"]["case"]
    for noise in ("Traceback", "hypothesis", "Falsifying", "explore()", "conftest"):
        assert noise not in ran.text[ran.text.index("= FAILURES =") :]
    assert len(re.findall("^  reproducer: ", ran.text, re.MULTILINE)) == 2
    for fault in cell.faults:
        path = Path(fault["reproducer"])
        assert path.is_file()
        assert path.is_relative_to(pytester.path / ".d5test" / "reproducers")
    (failure,) = ET.parse("run.xml").iter("failure")
    assert "Relu(): result 0 has the wrong shape" in (failure.get("message") or "")
    assert "reproducer: " in (failure.text or "")
    assert ran.counts()["./tiny.py:Wrong", "forward", "Softmax", "float32"][1] == 0


def test_an_abort_of_the_framework_is_one_fault(suite: Suite) -> None:
    ran = suite("Aborting", *FORWARD, "--dtype=float32")
    assert ran.rc == 1
    (fault,) = ran.tallies["./tiny.py:Aborting", "forward", "Relu", "float32"].faults
    assert fault["kind"] == "crash"
    assert ran.tallies["./tiny.py:Aborting", "forward", "Softmax", "float32"].right >= 25


def test_what_the_framework_lacks_is_said_and_is_no_failure(suite: Suite) -> None:
    ran = suite("WithoutRelu", *FORWARD, "-rs")
    assert ran.rc == 0
    cell = ran.tallies["./tiny.py:WithoutRelu", "forward", "Relu", "float32"]
    assert cell.reasons == {"tiny has none": cell.unsupported}
    assert cell.unsupported >= 25
    assert "unsupported: tiny has none" in ran.text


@pytest.mark.parametrize(
    ("backend", "dtype"), [("Handling", "float32"), ("WithoutDoubles", "float64")]
)
def test_so_is_what_the_row_handles_and_what_put_lacks(
    suite: Suite, backend: str, dtype: str
) -> None:
    ran = suite(backend, *FORWARD, "-rs")
    assert ran.rc == 0
    assert ran.tallies[f"./tiny.py:{backend}", "forward", "Relu", dtype].unsupported >= 25
    assert "unsupported: tiny has none" in ran.text


def test_a_row_that_refuses_all_its_cases_is_untested(suite: Suite) -> None:
    ran = suite("Refusing", *FORWARD)
    assert ran.rc == 1
    assert re.search(r"UNTESTED: too little was judged in \d+ tests? on tiny", ran.text)
    assert re.search(r"refuses all of the \d+ cases that were drawn: it is Tuesday. Say", ran.text)


def test_a_row_may_say_which_cases_it_takes(suite: Suite) -> None:
    ran = suite("AlongTheLast", *FORWARD, "--dtype=float32")
    assert ran.rc == 0
    cell = ran.tallies["./tiny.py:AlongTheLast", "forward", "Softmax", "float32"]
    assert cell.right >= 25
    assert cell.unsupported == 0


def test_known_failures_are_recorded_and_then_known(
    suite: Suite, pytester: pytest.Pytester
) -> None:
    options = ("--operator=Relu", "--dtype=float32", "--check=forward")
    assert suite("Wrong", *options, "--record-known=known.toml").rc == 1
    ran = suite("Wrong", *options, "--known=known.toml")
    assert ran.rc == 0, ran.text
    assert "2 xfailed" in ran.text
    cell = ran.tallies["./tiny.py:Wrong", "forward", "Relu", "float32"]
    assert cell.known == cell.drawn >= 25
    assert "100% of" in ran.text
    gone = suite("Tiny", *options, "--known=known.toml")
    assert gone.rc == 1
    assert gone.text.count("known failure is gone (") >= 3
    file = pytester.path / "known.toml"
    assert "FAILED: known failure is gone (known.toml, row 1) and 1 more; 0 cases" in gone.text
    assert "PASSED" not in gone.text
    file.write_text(re.sub(r"expires = .*", "expires = 2020-01-31", file.read_text()))
    expired = suite("Wrong", *options, "--known=known.toml")
    assert expired.rc == 1
    assert "known failure expired on 2020-01-31" in expired.text
    assert "PASSED" not in expired.text
    file.write_text(file.read_text().replace("operators = ", "operater = "))
    unreadable = suite("Wrong", *options, "--known=known.toml")
    assert unreadable.rc == pytest.ExitCode.USAGE_ERROR
    assert "row 1: unknown key 'operater': did you mean operators?" in unreadable.text


@pytest.mark.nightly
def test_rows_of_the_suites_may_be_given_again(suite: Suite, pytester: pytest.Pytester) -> None:
    """The file itself adds nothing, and a copy in which one row is edited that row."""
    ours = shipped("jax")
    options = ("--backend=jax", "--operator=Softplus", "--dtype=float32", "--check=gradient")
    assert "1 passed, 1 xfailed" in suite("", *options, f"--known={ours}").text
    text = ours.read_text()
    pytester.path.joinpath("copy.toml").write_text(text.replace("20 of 24", "19 of 24"))
    assert "1 passed, 2 xfailed" in suite("", *options, "--known=copy.toml").text


def test_a_fault_of_ones_own_row_is_known_if_ours_gives_the_same_bits(
    suite: Suite, pytester: pytest.Pytester
) -> None:
    """Then it calls the function that has the fault; otherwise it says what is known of ours."""
    pytester.path.joinpath("mine.py").write_text(
        """
from jax import lax, nn
from d5test.backends.base import Row
from d5test.backends.jax import Jax

class Same(Jax):
    rows = {**Jax.rows, "Softplus": Row(lambda op, x: nn.softplus(x))}

def steeper(op, x):
    y = nn.softplus(x)
    return y + 1e-3 * (y - lax.stop_gradient(y))

class Other(Jax):
    rows = {**Jax.rows, "Softplus": Row(steeper)}
"""
    )
    options = ("--operator=Softplus", "--dtype=float32", "--check=accuracy_gradient")
    same, other = (
        suite("", f"--backend=./mine.py:{name}", *options) for name in ("Same", "Other")
    )
    assert same.rc == 0
    assert "masked by known failures" in same.text
    assert other.rc == 1
    said = "of d5test's own row, not of the one here: the gradient of jax.nn.softplus"
    assert said in other.text


def test_a_known_failure_keeps_drawing_away(suite: Suite, pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("known.toml").write_text(
        """
[[known]]
checks = ["forward"]
operators = ["Relu"]
dtypes = ["float32"]
cases = ["Case(Relu(), (Tensor((2, 3)),))"]
reason = "one percent too much"
owner = "somebody"
expires = 2999-01-31
where = { rank0 = { min = 2 }, "shape0[0]" = { max = 3 } }

[[known]]
checks = ["forward"]
operators = ["Relu"]
dtypes = ["float32"]
cases = ["Case(Relu(), (Tensor((4, 2)),))"]
reason = "flat"
owner = "somebody"
expires = 2999-01-31
where = { "shape0[0]" = { min = 4 } }
"""
    )
    ran = suite("Wrong", *FORWARD, "--dtype=float32", "--known=known.toml", "--examples=20")
    cell = ran.tallies["./tiny.py:Wrong", "forward", "Relu", "float32"]
    assert cell.fault == 0
    assert cell.known > 0
    assert cell.right > 0
    assert "2 xfailed" in ran.text


def test_a_budget_is_kept_and_what_it_left_out_is_said(suite: Suite) -> None:
    ran = suite("Tiny", "--budget=3s", "--examples=4000")
    assert ran.rc == (0 if any(t.right for t in ran.tallies.values()) else 6)
    left = [t for t in ran.tallies.values() if t.left_out]
    assert len(left) > 10
    assert re.search(r"left out: \d+ tests, the budget was spent", ran.text)


MISTAKES: Sequence[tuple[tuple[str, ...], str]] = (
    (("--backend=nmpy",), "no backend 'nmpy'; did you mean numpy?"),
    (("--backend=./none.py:Tiny",), "there is no file"),
    (("--backend=./tiny.py:None_",), "has no|None_"),
    (("--backend=./tiny.py:Tiny", "--operator=Gelu"), "no row for Gelu in ./tiny.py:Tiny"),
    (("--backend=./tiny.py:Mistyped",), "a row for 'ReLU', which is not an operator: did you"),
    (("--backend=./tiny.py:Half",), "row for Relu: dtypes='half' is a string, not a tuple"),
    (("--backend=./tiny.py:HalfForm",), "form 'tiny.relu' of Relu: dtypes='half' is a string"),
    (("--backend=./tiny.py:Single",), "unknown dtype 'single'; there are float64, float32"),
    (
        ("--backend=./tiny.py:WrongForm",),
        "form 'tiny.softmax' of Softmax: 'rnk0' is",
    ),
    (("--backend=./tiny.py:WrongAttribute",), "attributes: did you mean axis"),
    (("--backend=./tiny.py:Contract",), "row for Relu: unknown contract 'half up': there is none"),
    (("--backend=./tiny.py:WrongPromotion",), "promotes: did you mean uint8"),
    (("--backend=./tiny.py:FormOfNothing",), "'ReLU', which is not an operator: did you"),
    (("--backend=numpy", "--operator=Sofmax"), "unknown operator 'Sofmax': did you mean Soft"),
    (("--backend=numpy", "--device=cuad"), "numpy has no device 'cuad' here, only cpu"),
    (("--backend=numpy", "--dtype=float23"), "unknown dtype 'float23'"),
    (("--backend=numpy", "--check=forwrd"), "unknown check 'forwrd': did you mean forward?"),
    (("--backend=numpy", "--known=none.toml"), "none.toml: No such file"),
    (("--backend=numpy", "--budget=soon"), "expected a time such as 90s"),
    (("-n2",), "no --backend is given; installed: numpy"),
    ((), "no --backend is given; installed: numpy"),
)
"""Of the command line, and of a backend; and what is said of each."""


@pytest.mark.parametrize(("options", "line"), thinned(MISTAKES))
def test_a_mistake_is_one_line_and_status_4(
    suite: Suite, options: tuple[str, ...], line: str
) -> None:
    if "-n2" in options:
        pytest.importorskip("xdist")
    ran = suite("", *options, "-q")
    assert ran.rc == pytest.ExitCode.USAGE_ERROR
    assert len(re.findall("^ERROR: .*", ran.text, re.MULTILINE)) == 1
    assert re.search(line, ran.text)
    assert "Traceback" not in ran.text


def test_a_framework_that_cannot_be_imported_is_one_line(
    suite: Suite, pytester: pytest.Pytester
) -> None:
    for name, body in {
        "gone": "import nosuchframework",
        "dying": "import os; os._exit(3)",
    }.items():
        pytester.path.joinpath(f"{name}.py").write_text(f"{body}\nclass B: pass\n")
        ran = suite("", f"--backend=./{name}.py:B", "-q")
        assert ran.rc == pytest.ExitCode.USAGE_ERROR
        (error,) = re.findall("^ERROR: .*", ran.text, re.MULTILINE)
        assert re.search("nosuchframework|exit status 3", error)
        assert "Traceback" not in ran.text


def test_who_waits_for_an_import_is_told(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        hasty="import d5test.plugin.workers\nd5test.plugin.workers.LONG = 0.2\n",
        slow="import time\ntime.sleep(1)\nfrom d5test.backends.numpy import Numpy\n",
    )
    suite = ("-p", "hasty", f"{SUITES}/operators", "--collect-only", "--operator=Relu")
    result = pytester.runpytest_subprocess(*suite, "--backend=./slow.py:Numpy")
    assert result.ret == 0
    result.stderr.fnmatch_lines(["d5test: ./slow.py:Numpy is still being imported"])


def test_no_worker_is_started_for_help(suite: Suite, pytester: pytest.Pytester) -> None:
    trace = "open('imported', 'w').close()\n"
    pytester.path.joinpath("loud.py").write_text(trace + "from tiny import Tiny\n")
    ran = suite("", "--backend=./loud.py:Tiny", "--help")
    assert ran.rc == 0
    assert "--record-known" in ran.text
    assert not (pytester.path / "imported").exists()


def test_another_project_keeps_its_options(suite: Suite, pytester: pytest.Pytester) -> None:
    """Theirs does not load us; our suite, run in their folder, does not load theirs."""
    pytester.makeconftest(
        """
        def pytest_addoption(parser):
            parser.addoption("--backend", default="theirs")
            parser.addoption("--device", default="theirs")
        """
    )
    pytester.makepyfile(
        test_theirs="""
        def test_theirs(request):
            assert request.config.getoption("--backend") == "theirs"
            assert not request.config.pluginmanager.hasplugin("d5test.plugin")
        """
    )
    pytester.makeini("[pytest]\naddopts = --no-such-option-in-suites=1\n")
    ran = suite("Tiny", *FORWARD, "--dtype=float32", "--examples=2")
    assert ran.rc == 0, ran.text
    pytester.makeini("[pytest]\n")
    assert pytester.runpytest_subprocess("test_theirs.py").ret == 0


def test_a_stranger_has_a_fixture_called_backend(suite: Suite, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(params=["one", "two"])
        def backend(request):
            return request.param

        def test_theirs(backend):
            assert backend in ("one", "two")
        """
    )
    ran = pytester.runpytest_subprocess("-p", "d5test.plugin")
    assert ran.ret == 0
    ran.assert_outcomes(passed=2)


def test_collecting_is_quick(suite: Suite) -> None:
    # two processes run tests, but do not collect them
    ran = suite("", "--backend=numpy", "--collect-only", "-qq", "-n2")
    assert ran.rc == 0
    counts = dict(re.findall(r"(test_\w+)\.py: (\d+)", ran.text))
    assert int(counts["test_forward"]) > 100
    files = {path.stem for path in (SUITES / "operators").glob("test_*.py")}
    assert files - set(counts) == {
        "test_compiled",
        "test_compiled_integers",
        "test_corpus",
        "test_forms",
        "test_integer_forms",
        "test_known",
        "test_large",
        "test_real",
        "test_time",
    }


def test_a_run_in_which_nothing_was_judged_has_a_status_of_its_own(suite: Suite) -> None:
    ran = suite("WithoutRelu", "--operator=Relu", "--check=forward", "--dtype=float32")
    assert ran.rc == 6
    assert "NOTHING WAS JUDGED on tiny.py:WithoutRelu" in ran.text


def test_a_verdict_comes_first_and_faults_are_grouped_by_cause(suite: Suite) -> None:
    ran = suite("Aborting", "--operator=Relu", "--check=forward,determinism,untouched")
    assert ran.rc == 1
    said = ran.text[ran.text.index("FAILED:") :]
    first, _, rest = said.partition("\n")
    assert re.match(r"FAILED: \d+ faults of 1 cause on tiny.py:Aborting", first), first
    assert "shortest reproducer: .d5test/reproducers/Relu-" in rest
    assert rest.index("shortest reproducer") < rest.index("right  fault")


@pytest.mark.nightly
def test_a_backend_has_as_long_as_the_command_line_says(suite: Suite) -> None:
    only = ("--operator=Relu", "--check=forward", "--dtype=float32", "--examples=3")
    ran = suite("Waiting", *only, "--answer-within=4s")
    assert ran.rc == 1
    assert "Relu(): no answer on tiny.py:Waiting" in ran.text
    assert "no answer within 4 s" in ran.text or "no answer within 3 s, less than" in ran.text


SINE = """
import numpy as np
from d5test import Operator, inputs


class Sine(Operator):
    domain = "stranger"

    def forward(self, x):
        return np.sin(x)

    def backward(self, grads, inputs, outputs):
        return grads[0] * -np.cos(inputs[0])


@inputs(Sine)
def sine_inputs(d, op):
    return (d.tensor(d.sides(2)),)
"""

RIGHT_SINE = """
import numpy as np
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy


class Right(Numpy):
    rows = {"Sine": Row(lambda op, x: np.sin(x))}

    def vjp(self, function, inputs, grads, wanted):
        return function(*inputs), [grads[0] * np.cos(inputs[0])]
"""


HALF = """
import numpy as np
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy


def tanh(op, x):
    return np.tanh(x) * (1.01 if x.shape[0] % 2 == 0 else 1)


class Half(Numpy):
    rows = {**Numpy.rows, "Tanh": Row(tanh, gradient=Numpy.rows["Tanh"].gradient)}
"""


FIRST = HALF.replace("x.shape[0] % 2 == 0", "CALLS.append(1) or len(CALLS) < 9").replace(
    "def tanh", "CALLS = []\n\n\ndef tanh"
)


def test_what_is_right_when_it_is_asked_again_is_said_to_be_unsteady(
    suite: Suite, pytester: pytest.Pytester
) -> None:
    pytester.path.joinpath("half.py").write_text(FIRST)
    options = "--operator=Tanh", "--dtype=float32", "--examples=9"
    ran = suite("", "--backend=./half.py:Half", "--check=layout", *options)
    assert ran.rc == 1
    assert "met by: layout in float32, Case(Tanh(), " in ran.text
    said = "forward found nothing wrong when it was asked again: the result differs between calls"
    assert said in ran.text
    assert "--operator=Tanh --check=layout,forward,determinism --dtype=float32" in ran.text
    assert "reproducer" not in ran.text


def test_what_others_saw_wrong_is_said_where_no_test_of_values_says_it(
    suite: Suite, pytester: pytest.Pytester
) -> None:
    pytester.path.joinpath("half.py").write_text(HALF)
    options = "--operator=Tanh,Exp", "--dtype=float32", "--examples=9"
    ran = suite("", "--backend=./half.py:Half", "--check=layout,special", *options)
    assert ran.rc == 1
    assert "FAILED: Tanh is wrong, though no test of values drew such a case" in ran.text
    assert "met by: layout in float32, Case(Tanh(), " in ran.text
    assert (
        "forward says of it: Tanh() composed by its row of numpy.tanh and more: the result is"
        in ran.text
    )
    (line,) = (line for line in ran.text.splitlines() if line.startswith("    reproducer: "))
    tried = run(pytester.path / line.partition(": ")[2])
    assert tried.returncode == 1, tried.stdout + tried.stderr
    ran = suite("", "--backend=./half.py:Half", "--check=layout,forward", *options)
    assert ran.rc == 1
    assert "no test of values" not in ran.text
    assert "1 fault of 1 cause" in ran.text


def test_a_wrong_reference_is_no_fault_of_the_framework(
    suite: Suite, pytester: pytest.Pytester
) -> None:
    pytester.path.joinpath("sine.py").write_text(SINE)
    pytester.path.joinpath("right.py").write_text(RIGHT_SINE)
    ran = suite(
        "", "--backend=./right.py:Right", "--operator=./sine.py:Sine", "--check=gradient",
        "--dtype=float32",
    )  # fmt: skip
    assert ran.rc == 1
    (tally,) = ran.tallies.values()
    assert (tally.fault, tally.faults, tally.untested) == (0, [], 1)
    assert "Sine(): the reference contradicts itself" in ran.text
    assert "by Sine.backward" in ran.text
    assert "Traceback" not in ran.text
