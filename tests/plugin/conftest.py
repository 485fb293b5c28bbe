"""`suite`: a run of the operators' suite in another project's folder, on a backend in a file."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from d5test.known.reading import shipped
from d5test.outcome.tally import Tally
from d5test.plugin.outcomes import tallies_of

SUITES = shipped("torch").parents[1]
SLOW, HUNG = 120, 300
"""Seconds after which one test of a run says where it stands, and after which the run is ended."""
ROOT = SUITES.parent if (SUITES.parent / "d5test").is_dir() else SUITES.parents[1]

TINY = """
import os
import time
import numpy as np
from d5test.backends.base import Row, Unsupported
from d5test.backends.numpy import Numpy

none = "not here"
right = {name: Numpy.rows[name] for name in ("Relu", "Softmax")}


class Tiny(Numpy):
    framework = "tiny"
    rows = right


class Building(Tiny):
    compiles_shapes = True


def unstable(op, x):
    e = np.exp(x)
    return e / e.sum(op.axis, keepdims=True)


def flat(op, x):
    return np.maximum(x, 0).reshape(-1)


def partly(op, x):
    y = np.maximum(x, 0)
    return y.reshape(-1) if x.shape[0] > 3 else y * (1.01 if x.ndim > 1 else 1)


class Wrong(Tiny):
    rows = {**right, "Relu": Row(partly, gradient=none)}


def aborting(op, x):
    if x.size > 40:
        os.abort()
    return np.maximum(x, 0)


def waiting(op, x):
    time.sleep(600 if x.size > 4 else 0)
    return np.maximum(x, 0)


class Waiting(Tiny):
    rows = {**right, "Relu": Row(waiting, gradient=none)}


class Aborting(Tiny):
    rows = {**right, "Relu": Row(aborting, gradient=none)}


def refusing(op, x):
    raise Unsupported("it is Tuesday")


def unwritten(op, x):
    raise NotImplementedError("later")


class Unwritten(Tiny):
    rows = {**right, "Relu": Row(unwritten, gradient=none)}


def interrupted(op, x):
    raise KeyboardInterrupt


class Interrupted(Tiny):
    rows = {**right, "Softmax": Row(interrupted, gradient=none)}


class Mistyped(Tiny):
    rows = {"ReLU": Numpy.rows["Relu"]}


class Half(Tiny):
    rows = {"Relu": Row(right["Relu"].call, dtypes="half")}


class HalfForm(Tiny):
    forms = {"Relu": {"tiny.relu": Half.rows["Relu"]}}


class Single(Tiny):
    rows = {"Relu": Row(right["Relu"].call, dtypes=("float32", "single"))}


class WrongForm(Tiny):
    forms = {"Softmax": {"tiny.softmax": Row(right["Softmax"].call, where={"rnk0": 2})}}


class WrongAttribute(Tiny):
    forms = {"Softmax": {"tiny.softmax": Row(right["Softmax"].call, attributes={"axes": (0,)})}}


class Contract(Tiny):
    rows = {"Relu": Row(right["Relu"].call, contract="half up")}


class WrongPromotion(Tiny):
    forms = {"Softmax": {"tiny.softmax": Row(right["Softmax"].call, promotes=("unit8",))}}


class FormOfNothing(Tiny):
    forms = {"ReLU": {"tiny.relu": Row(right["Relu"].call)}}


def scalar(op, x):
    return float(x.sum())


class Scalars(Tiny):
    rows = {name: Row(scalar, gradient=none) for name in right}


class Mistaken(Tiny):
    def vjp(self, function, inputs, grads, wanted):
        up = grads
        return tuple(map(up, inputs)), []


class Lacking(Tiny):
    rows = {
        **right,
        "Relu": Row(lambda op, x: x * op.slope),
        "Gather": Row(lambda op, x, indices: np.take(x, indices, op.axes)),
    }


class Strided(Tiny):
    layouts = ("contiguous", "transposed")

    def put(self, array, dtype, layout="contiguous"):
        if layout != "contiguous":
            raise ValueError("no such strides")
        return super().put(array, dtype)


class Refusing(Tiny):
    rows = {**right, "Relu": Row(refusing, gradient=none)}


def lacking(op, x):
    raise Unsupported("tiny has none") from NotImplementedError()


class WithoutRelu(Tiny):
    rows = {**right, "Relu": Row(lacking, gradient=none)}


def handling(op, x):
    try:
        raise NotImplementedError
    except NotImplementedError:
        raise Unsupported("tiny has none") from None


class Handling(Tiny):
    rows = {**right, "Relu": Row(handling, gradient=none)}


class WithoutDoubles(Tiny):
    def put(self, array, dtype, layout="contiguous"):
        if dtype == "float64":
            raise Unsupported("tiny has none")
        return super().put(array, dtype, layout)


def along_the_last(op, x):
    if op.axis not in (-1, x.ndim - 1):
        raise Unsupported("another axis")
    return right["Softmax"].call(op, x)


class AlongTheLast(Tiny):
    rows = {**right, "Softmax": Row(along_the_last, gradient=none, attributes={"axis": (-1,)})}
"""


@dataclass
class Ran:
    """What a run said: exit status, output, and the tallies of its tests."""

    rc: int
    text: str
    tallies: dict[tuple[str, str, str, str], Tally]

    def counts(self) -> dict[tuple[str, str, str, str], tuple[int, ...]]:
        return {
            cell: (t.right, t.fault, t.known, t.unsupported, t.void, t.untested)
            for cell, t in self.tallies.items()
        }


Suite = Callable[..., Ran]


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Call it with a backend's class in tiny.py and options of pytest."""
    pytester.path.joinpath("tiny.py").write_text(TINY)
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("COLUMNS", "200")

    def run(backend: str, *options: str, where: str = "operators") -> Ran:
        given = (f"--backend=./tiny.py:{backend}",) if backend else ()
        fixed = ("-p", "no:cacheprovider", "-o", f"faulthandler_timeout={SLOW}")
        try:
            result = pytester.run(
                sys.executable, "-m", "pytest", SUITES / where, *given, *fixed,
                "--junit-xml=run.xml", *options, timeout=HUNG,
            )  # fmt: skip
        except pytester.TimeoutExpired as hung:
            said = [(pytester.path / stream).read_text() for stream in ("stdout", "stderr")]
            raise AssertionError("\n".join([str(hung), *said])) from None
        text = "\n".join([*result.outlines, *result.errlines])
        return Ran(result.ret, text, dict(_tallies(pytester.path / "run.xml")))

    return run


def _tallies(file: Path):
    if not file.exists():
        return
    for case in ET.parse(file).iter("testcase"):
        properties = [(p.get("name"), p.get("value")) for p in case.iter("property")]
        report = pytest.TestReport(
            "", ("", 0, ""), {}, "passed", None, "call", user_properties=properties
        )
        for tally in tallies_of([report]):
            yield ((tally.backend, tally.check, tally.operator, tally.dtype), tally)
