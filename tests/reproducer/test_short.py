"""The short form: one call as the framework's users write it, proved before it is promised."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS
from d5test.checks.inquiry import Inquiry
from d5test.client.client import WorkerClient
from d5test.outcome.fault import Evidence, Fault
from d5test.reference.operators import OPERATORS
from d5test.reproducer import prove, short
from d5test.worker.public_names import names_for, public_names
from tests.nightly import at_night
from tests.reproducer.strangers import run

FRAMEWORK = """
import numpy as np

__version__ = "7"

def threshold(x, least, value):
    kept = np.where(x > least, x, np.float32(value)).astype(x.dtype)
    {wrong}

class Late(np.ndarray):
    def copy(self):
        raise RuntimeError("it is computed only now")

class Threshold:
    def __init__(self, least):
        self.least = least

    def __call__(self, x, value):
        return threshold(x, self.least, value)

class Twice(Threshold):
    def __call__(self, x, value):
        return Threshold(self.least)(threshold(x, self.least, value), value)

cut = threshold

def made(least):
    return Threshold(least)

def maker():
    return lambda *inputs: threshold(*inputs)

def add(x, y):
    return x + {other}

def zeros(shape):
    return np.zeros(shape, np.float32)

def biased(x, least, bias):
    return threshold(x + bias[0], least, 0.0)

def tensor(numbers):
    return np.array(numbers)

def counted(x, least, images):
    return threshold(x, least, 0.0)[: images[0]]

class Graph:
    def __init__(self, least):
        self.least = least

    def run(self, x):
        return threshold(x, self.least, 0.0)

def build(least):
    return Graph(least)

class Symbol:
    dtype = "float32"

    def __init__(self, compute):
        self.compute = compute

    @property
    def shape(self):
        return Shape()(self)

class Shape:
    def __call__(self, symbol):
        return Symbol(lambda x: x.shape)

class Input:
    def __call__(self):
        return Symbol(lambda x: x)

def later(symbol, least):
    return Symbol(lambda x: threshold(symbol.compute(x), least, 0.0))

class Compiled:
    def __init__(self, symbol):
        self.symbol = symbol

    def __call__(self, x):
        return self.symbol.compute(x)

def pull(x, least, dy):
    return np.where(x > least, dy, 0).astype(x.dtype) * {slope}
"""
BACKEND = """
import numpy as np
import toy
from d5test.backends.base import Backend, Table, Template

rows = Table()
one = toy.Threshold(1.0)

def changed(least):
    layer = toy.Threshold(0.0)
    layer.least = least
    return layer

class Mine:
    def __init__(self, least):
        self.layer = toy.Threshold(least)

    def __call__(self, x, value):
        return self.layer(x, value)

def keep():
    global kept
    kept = toy.maker()
    return kept

@rows.native("ThresholdedRelu")
def thresholded(op, x):
    return {row}

@rows.native("Add")
def add(op, x, y):
    return {add}

class Toy(Backend):
    framework = "toy"
    rows = rows
    version = "7"
    template = Template(
        imports="import toy",
        tensor='np.array({{values}}, "{{dtype}}")',
        array="np.array({{y}}, float)",
        dtype="{{y}}.dtype.name",
        gradient="y = {{call}}\\nresults = [toy.pull({{inputs}}, 1.0, dy)]",
    )

    def put(self, array, dtype, layout="contiguous"):
        return np.array(array)

    def get(self, tensor):
        return tensor.copy(), tensor.dtype.name

    def wait(self, tensors):
        pass

    def vjp(self, function, inputs, grads, wanted):
        return (function(*inputs),), [toy.pull(*inputs, 1.0, grads[0])]
"""
RIGHT = "return kept"
ROW = "toy.threshold(x, op.alpha, 0.0)"


class Toy:
    """A framework of one function, its backend, and a case of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(
        self,
        wrong: str = RIGHT,
        slope: float = 1,
        row: str = ROW,
        other: str = "y",
        add: str = "toy.add(x, y)",
    ) -> None:
        """Write the framework and the backend anew."""
        framework = FRAMEWORK.format(wrong=wrong, slope=slope, other=other)
        (self.folder / "toy.py").write_text(framework)
        (self.folder / "backend.py").write_text(BACKEND.format(row=row, add=add))

    def client(self) -> WorkerClient:
        """A worker of the backend."""
        return WorkerClient(f"{self.folder / 'backend.py'}:Toy")

    def case(self) -> Case:
        """A threshold at 1 of two numbers below and four above."""
        x = Tensor((2, 3), data=(0.5, -2.0, 1.5, 3.0, 0.1, 1.25))
        return Case(OPERATORS["ThresholdedRelu"](), (x,), 7)

    def fault(
        self, client: WorkerClient, check: str = "forward", case: Case | None = None
    ) -> Fault:
        """The fault that a check finds, with its calls named."""
        with pytest.raises(Fault) as caught:
            CHECKS[check].run(client, case or self.case())
        caught.value.name_calls(client)
        return caught.value

    def run(self, path: Path) -> Any:
        """A reproducer, that finds the framework by itself."""
        return run(path)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


WRONG = {
    "value": ("forward", "return kept * np.float32(1.5)", 1),
    "inaccuracy": ("forward", "return np.nextafter(kept, np.float32(9))", 1),
    "shape": ("forward", "return kept[None]", 1),
    "number": ("forward", "return kept, kept", 1),
    "dtype": ("forward", "return kept.astype(np.float64)", 1),
    "nan": ("forward", "return np.full_like(kept, np.nan)", 1),
    "gradient": ("gradient", RIGHT, 2),
    "exception": ("forward", "raise KeyError(7)", 1),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_fault_of_one_call_is_short(kind: str, toy: Toy, tmp_path: Path) -> None:
    check, wrong, slope = WRONG[kind]
    toy.build(wrong, slope)
    with toy.client() as client:
        fault = toy.fault(client, check)
        path, told = prove(fault, client, tmp_path / "out")
    assert fault.headline.startswith("ThresholdedRelu() by toy.threshold as its row calls it: ")
    assert told == ""
    text = path.read_text()
    assert len(text.splitlines()) <= 40
    assert "y = toy.threshold(x0, 1.0, 0.0)" in text
    assert "backend" not in text.partition('"""\nimport')[2]
    there = toy.run(path)
    assert there.returncode == 1, there.stdout + there.stderr
    assert there.stdout.startswith("still there: ")
    toy.build()
    gone = toy.run(path)
    assert (gone.returncode, gone.stdout) == (0, "gone (toy 7)\n"), gone.stderr
    (tmp_path / "toy.py").unlink()
    unable = toy.run(path)
    assert unable.returncode == 2
    assert unable.stdout.startswith("cannot be tried: ModuleNotFoundError")


def test_a_death_in_the_gradient_is_short(toy: Toy, tmp_path: Path) -> None:
    toy.build(slope='__import__("os").abort()')
    with toy.client() as client:
        fault = toy.fault(client, "gradient")
        path, said = prove(fault, client, tmp_path / "out")
    assert fault.kind == "crash"
    assert said == ""
    assert fault.headline.startswith("ThresholdedRelu() by toy.threshold as its row calls it: ")
    assert "d5test/worker" not in fault.message
    text = path.read_text()
    assert "y = toy.threshold(x0, 1.0, 0.0)" in text
    assert len(text.splitlines()) <= 60
    there = toy.run(path)
    assert there.returncode == 1
    assert there.stdout == "still there: the process died with status -6\n"
    toy.build()
    gone = toy.run(path)
    assert (gone.returncode, gone.stdout) == (0, "gone (toy 7)\n"), gone.stderr
    (tmp_path / "toy.py").unlink()
    assert toy.run(path).returncode == 2


ABORT = '__import__("os").abort()'
DEATHS: dict[str, tuple[dict[str, Any], str, str]] = {
    "the only call": (
        {"wrong": ABORT},
        "by toy.threshold as its row calls it: the process died on",
        "threshold(x0, 1.0, 0.0)",
    ),
    "the second call": (
        {"row": f"toy.add({ROW}, x)", "other": ABORT},
        "composed by its row of toy.threshold, toy.add and more: the process died in toy.add with",
        "add(x0, x1)",
    ),
}


@pytest.mark.parametrize("where", DEATHS)
def test_a_death_is_of_the_call_that_was_under_way(where: str, toy: Toy, tmp_path: Path) -> None:
    changes, said, call = DEATHS[where]
    toy.build(**changes)
    with toy.client() as client:
        fault = toy.fault(client)
        path, note = prove(fault, client, tmp_path / "out")
    assert (fault.kind, note) == ("crash", "")
    assert fault.headline.startswith(f"ThresholdedRelu() {said} ")
    text = path.read_text()
    assert f"y = toy.{call}\n" in text
    assert len(text.splitlines()) <= 60
    assert toy.run(path).stdout == "still there: the process died with status -6\n"
    toy.build()
    assert toy.run(path).stdout == "gone (toy 7)\n"


def test_a_hang_is_of_the_call_that_was_under_way(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(short, "SECONDS", 2)
    toy.build('__import__("time").sleep(1e6)')
    with WorkerClient(f"{tmp_path / 'backend.py'}:Toy", timeout=1.0) as client:
        fault = toy.fault(client)
        path, note = prove(fault, client, tmp_path / "out")
    assert (fault.kind, note) == ("hang", "")
    said = "ThresholdedRelu() by toy.threshold as its row calls it: no answer on"
    assert fault.headline.startswith(f"{said} ")
    assert len(path.read_text().splitlines()) <= 60
    assert toy.run(path).stdout == "still there: no answer within 2 s\n"
    toy.build()
    assert toy.run(path).stdout == "gone (toy 7)\n"


def test_a_death_between_calls_is_of_none(toy: Toy, tmp_path: Path) -> None:
    toy.build(row=f"[{ROW}, {ABORT}][0]")
    with toy.client() as client:
        fault = toy.fault(client)
        path, _ = prove(fault, client, tmp_path / "out")
    said = "composed by its row of toy.threshold and more: the process died with"
    assert fault.headline.startswith(f"ThresholdedRelu() {said} ")
    assert "def thresholded(op, x)" in path.read_text()


def test_a_death_where_an_exception_is_due_is_short(toy: Toy, tmp_path: Path) -> None:
    shapes = "(x.shape, np.shape(y))"
    toy.build(other=f"y if len({{*{shapes}}}) == 1 else {ABORT}")
    case = Case(OPERATORS["Add"](), (Tensor((2, 3)), Tensor((2, 3))), 7)
    with toy.client() as client:
        fault = toy.fault(client, "invalid_arguments", case)
        path, note = prove(fault, client, tmp_path / "out")
    assert (fault.kind, note) == ("crash", "")
    assert fault.headline.startswith("Add() by toy.add as its row calls it: the process died on")
    assert len(path.read_text().splitlines()) <= 60
    assert toy.run(path).stdout == "still there: the process died with status -6\n"
    toy.build()
    assert toy.run(path).stdout == "gone (toy 7)\n"
    toy.build(other="np.resize(y, x.shape)")
    assert toy.run(path).stdout == "still there: accepted (toy 7)\n"


NEGATIVE = """
import torch
from d5test.backends.base import Table
from d5test.backends.torch import Torch

rows = Table()
rows.native("Neg")(lambda op, x: torch.rsub(x, 0))

class Negative(Torch):
    rows = {**Torch.rows, **rows}
"""


def test_a_zero_of_the_other_sign_is_short(tmp_path: Path) -> None:
    (tmp_path / "negative.py").write_text(NEGATIVE)
    case = Case(OPERATORS["Neg"](), (Tensor((1,), values=("every", 0, "zeros")),))
    with WorkerClient(f"{tmp_path / 'negative.py'}:Negative") as client:
        with pytest.raises(Fault, match="a zero has the wrong sign") as caught:
            CHECKS["accuracy"].run(client, case)
        caught.value.name_calls(client)
        path, said = prove(caught.value, client, tmp_path / "out")
    text = path.read_text()
    assert said == ""
    assert "y = torch.rsub(x0, 0)" in text
    assert len(text.splitlines()) <= 40
    there = run(path)
    assert there.returncode == 1
    assert ", want -0.0" in there.stdout
    path.write_text(text.replace("torch.rsub(x0, 0)", "torch.neg(x0)"))
    assert run(path).returncode == 0


def test_what_is_accepted_is_short(toy: Toy, tmp_path: Path) -> None:
    toy.build(other="np.resize(y, x.shape)")
    case = Case(OPERATORS["Add"](), (Tensor((2, 3)), Tensor((2, 3))), 7)
    with toy.client() as client:
        fault = toy.fault(client, "invalid_arguments", case)
        path, _ = prove(fault, client, tmp_path / "out")
    assert len(path.read_text().splitlines()) <= 40
    there = toy.run(path)
    assert (there.returncode, there.stdout) == (1, "still there: accepted (toy 7)\n")
    toy.build()
    gone = toy.run(path)
    assert (gone.returncode, gone.stdout) == (0, "gone (toy 7)\n"), gone.stderr


def test_what_a_row_makes_fit_is_not_called_accepted(toy: Toy, tmp_path: Path) -> None:
    toy.build(add="toy.add(x, np.resize(y, x.shape))")
    case = Case(OPERATORS["Add"](), (Tensor((2, 3)), Tensor((2, 3))), 7)
    with toy.client() as client:
        path, _ = prove(toy.fault(client, "invalid_arguments", case), client, tmp_path / "out")
    assert "def add(op, x, y)" in path.read_text()


def submodule(toy: Toy) -> None:
    """A wrong function in a module that the framework does not import itself."""
    toy.build()
    (toy.folder / "toy").mkdir()
    (toy.folder / "toy.py").rename(toy.folder / "toy" / "__init__.py")
    wrong = FRAMEWORK.format(wrong="return kept * np.float32(1.5)", slope=1, other="y")
    (toy.folder / "toy" / "special.py").write_text(wrong)
    text = BACKEND.format(row="special.threshold(x, op.alpha, 0.0)", add="toy.add(x, y)")
    (toy.folder / "backend.py").write_text(f"from toy import special{text}")


def test_the_module_of_the_function_is_imported(toy: Toy, tmp_path: Path) -> None:
    submodule(toy)
    with toy.client() as client:
        path, told = prove(toy.fault(client), client, tmp_path / "out")
    text = path.read_text()
    assert "import toy\nimport toy.special\n" in text
    assert "y = toy.special.threshold(x0, 1.0, 0.0)" in text
    assert told == ""
    there = toy.run(path)
    assert (there.returncode, there.stdout[:11]) == (1, "still there"), there.stderr


def test_it_names_the_first_wrong_element(toy: Toy, tmp_path: Path) -> None:
    toy.build("kept[1, 2] = 7; return kept")
    with toy.client() as client:
        path, _ = prove(toy.fault(client), client, tmp_path / "out")
    said = toy.run(path).stdout
    assert said.startswith("still there: result 0 at [1 2]: 7.0, want 1.25, give or take ")


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (
            "toy.threshold(x, op.alpha, 0.0) * np.float32(3)",
            "composed by its row of toy.threshold and more",
        ),
        (
            "toy.threshold(toy.threshold(x, op.alpha, 0.0), op.alpha, 0.0)",
            "composed of toy.threshold by its row",
        ),
        (
            "toy.add(toy.threshold(x, op.alpha, 0.0), toy.add(x, x).T.T)",
            "composed of toy.threshold and toy.add by its row",
        ),
        (
            "toy.add(toy.threshold(x, op.alpha, 0.0), x * np.float32(2))",
            "composed by its row of toy.threshold, toy.add and more",
        ),
        (
            "toy.threshold(np.sqrt(toy.add(x, x) ** 2), op.alpha, 0.0)",
            "composed by its row of toy.add, toy.threshold and more",
        ),
        ("np.where(x > op.alpha, x, np.float32(0)) * 3", ""),
    ],
)
def test_what_a_row_composes_is_taken_out_of_its_source(
    row: str, named: str, toy: Toy, tmp_path: Path
) -> None:
    toy.build("return kept * np.float32(1.5)", row=row)
    with toy.client() as client:
        fault = toy.fault(client)
        path, told = prove(fault, client, tmp_path / "out")
    assert named in fault.headline
    assert ("by its row" in fault.headline) == (named != "")
    assert told == ""
    assert "def thresholded(op, x)" in path.read_text()
    assert toy.run(path).returncode == 1


LAYERS = {
    "made": "toy.Threshold(op.alpha)(x, value=0.0)",
    "kept": "one(x, 0.0)",
    "made by a function": "toy.made(op.alpha)(x, 0.0)",
    "changed": "changed(op.alpha)(x, 0.0)",
    "within a layer of its own": "Mine(op.alpha)(x, 0.0)",
    "within a layer of theirs": "toy.Twice(op.alpha)(x, 0.0)",
    "looked at": "one(x, 0.0) if issubclass(type(one), toy.Threshold) else x",
}


@pytest.mark.parametrize("row", LAYERS)
def test_a_layer_is_named(row: str, toy: Toy, tmp_path: Path) -> None:
    """Its weights are in no source text: the row is taken out of the backend."""
    toy.build("return kept * np.float32(1.5)", row=LAYERS[row])
    with toy.client() as client:
        fault = toy.fault(client)
        path, told = prove(fault, client, tmp_path / "out")
    name = "Twice" if row == "within a layer of theirs" else "Threshold"
    assert fault.headline.startswith(f"ThresholdedRelu() by toy.{name} as its row calls it: ")
    assert (fault.calls.source, told) == ("", "")
    assert "def thresholded(op, x)" in path.read_text()
    assert toy.run(path).returncode == 1


def test_a_function_is_named_as_it_names_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def power() -> None: ...

    toy, deeper = ModuleType("toy"), ModuleType("toy.deeper")
    vars(toy).update(pow=power, power=power, raise_to=power, deeper=deeper, _power=power)
    monkeypatch.setitem(sys.modules, "toy", toy)
    assert public_names("toy")[id(power)] == "toy.power"
    vars(deeper)["power"] = vars(toy).pop("power")
    assert public_names("toy")[id(power)] == "toy.pow"  # the shortest


def test_a_function_has_the_name_of_the_module_that_the_backend_imports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def power() -> None: ...

    toy, bases, functions, mine = map(ModuleType, ("toy", "toy.bases", "toy.functions", "mine"))
    vars(bases).update(power=power)
    vars(functions).update(pow=power, power=power, raise_to=power)
    vars(toy).update(bases=bases, functions=functions)
    vars(mine).update(F=functions)
    monkeypatch.setitem(sys.modules, "toy", toy)
    monkeypatch.setitem(sys.modules, "mine", mine)
    Mine = type("Mine", (), {"__module__": "mine", "framework": "toy"})
    assert names_for(Mine())[id(power)] == "toy.functions.power"
    vars(mine).clear()
    assert names_for(Mine())[id(power)] == "toy.bases.power"


def test_a_function_of_symbols_is_named(toy: Toy) -> None:
    """Not what makes the symbol, nor what the recorder itself asks of it."""
    row = "toy.Compiled(toy.later(toy.Input()(), op.alpha))(x)"
    toy.build("return kept * np.float32(1.5)", row=row)
    with toy.client() as client:
        fault = toy.fault(client)
    assert fault.calls.names == ("toy.later", "toy.Compiled")
    assert "composed of toy.later and toy.Compiled by its row: " in fault.headline


BIASED = "toy.biased(x, op.alpha, toy.zeros((1,)))"


def test_a_function_of_which_no_tensor_comes_is_named(toy: Toy) -> None:
    """It makes a part of a model, which a method of the model computes."""
    toy.build("return kept * np.float32(1.5)", row="toy.build(op.alpha).run(x)")
    with toy.client() as client:
        fault = toy.fault(client)
    assert fault.calls.names == ("toy.build",)
    assert "composed by its row of toy.build and more: " in fault.headline


COUNTED = "toy.counted(x, op.alpha, toy.tensor([x.shape[0]]))"


@pytest.mark.parametrize(("row", "name"), [(BIASED, "biased"), (COUNTED, "counted")])
def test_a_tensor_that_says_nothing_new_is_no_part_of_what_is_composed(
    row: str, name: str, toy: Toy, tmp_path: Path
) -> None:
    """A bias that is absent, or how many images there are."""
    toy.build("return kept * np.float32(1.5)", row=row)
    with toy.client() as client:
        fault = toy.fault(client)
        path, told = prove(fault, client, tmp_path / "out")
    assert fault.headline.startswith(f"ThresholdedRelu() by toy.{name} as its row calls it: ")
    assert told == ""
    assert len(path.read_text().splitlines()) <= 40
    assert toy.run(path).returncode == 1


@pytest.mark.parametrize(
    ("row", "name"), [("toy.threshold(x, op.alpha, 0.0)", "threshold"), (BIASED, "biased")]
)
def test_a_call_that_raises_when_its_result_is_read_is_named(
    row: str, name: str, toy: Toy
) -> None:
    toy.build("return kept.view(Late)", row=row)
    with toy.client() as client:
        fault = toy.fault(client)
    said = f"ThresholdedRelu() by toy.{name} as its row calls it: valid inputs raise an exception"
    assert fault.headline.startswith(said)
    assert "it is computed only now" in fault.details["raised"]


@pytest.mark.parametrize(
    ("other", "at"), [("np.minimum(y, 1e9)", "inf"), ("np.nan_to_num(y)", "nan")]
)
def test_where_an_infinity_or_nan_is_due_it_is_short(
    other: str, at: str, toy: Toy, tmp_path: Path
) -> None:
    toy.build(other=f"{other}.astype(y.dtype)")
    x = Tensor((100,), data=(0.0,) * 100)
    y = Tensor((100,), data=(*[float(at)] * 3, *range(97)))
    case = Case(OPERATORS["Add"](), (x, y))
    with toy.client() as client:
        fault = toy.fault(client, "accuracy", case)
        path, told = prove(fault, client, tmp_path / "out")
    assert told == ""
    assert len(path.read_text().splitlines()) <= 40
    assert f'x1 = np.array([{at}], "float32")' in path.read_text()
    there = toy.run(path)
    assert there.returncode == 1, there.stdout + there.stderr
    assert f", want {at}, give or take 0.0" in there.stdout
    toy.build()
    gone = toy.run(path)
    assert (gone.returncode, gone.stdout) == (0, "gone (toy 7)\n"), gone.stderr


def test_one_that_raises_by_itself_accuses_no_call_before_it(toy: Toy) -> None:
    toy.build(row="[toy.threshold(x, op.alpha, 0.0), 1 / 0]")
    with toy.client() as client:
        fault = toy.fault(client)
    assert "ZeroDivisionError" in fault.details["raised"]
    assert "ThresholdedRelu(): the backend's row raised ZeroDivisionError at " in fault.headline


def test_what_a_row_keeps_is_no_proxy(toy: Toy) -> None:
    toy.build("return kept * np.float32(1.5)", row="keep()(x, op.alpha, 0.0)")
    with toy.client() as client:
        headlines = {toy.fault(client).headline for _ in range(2)}
    (headline,) = headlines
    assert headline.startswith("ThresholdedRelu() by toy.")


def test_one_that_shows_nothing_is_not_promised(toy: Toy, tmp_path: Path) -> None:
    toy.build("return kept * np.float32(1.5)")
    with toy.client() as client:
        fault = toy.fault(client)
        fault.calls = replace(fault.calls, source="np.where(x0 > 1, x0, x0 * 0)")
        path, told = prove(fault, client, tmp_path / "out")
    assert told == ""
    assert "def thresholded(op, x)" in path.read_text()


def pretended(client: WorkerClient, op: Any, inputs: tuple[Tensor, ...], pulled: bool) -> Fault:
    """The fault of a case that is right: its claim holds."""
    inquiry = Inquiry("forward", client, Case(op, inputs, 3))
    grads = inquiry.upstream if pulled else None
    loosest = inquiry.classes()[-1]
    bounds = (
        inquiry.forward_bounds(loosest)
        if grads is None
        else inquiry.gradient_bounds(loosest, grads)
    )
    evidence = Evidence((inquiry.feed(grads=grads),), "within", (bounds,), inquiry.wanted)
    fault = inquiry.subject.fault("value", "the result is wrong", evidence)
    fault.name_calls(client)
    return fault


@pytest.fixture(params=["torch", *map(at_night, ("jax", "tensorflow"))], scope="module")
def framework(request: pytest.FixtureRequest) -> Iterator[WorkerClient]:
    pytest.importorskip(request.param)
    with WorkerClient(request.param) as client:
        yield client


def test_frameworks_that_are_right_are_told_to_be(framework: WorkerClient, tmp_path: Path) -> None:
    files = []
    for dtype, pulled in product(("float32", "bfloat16"), (False, True)):
        asked = (
            (OPERATORS["Softmax"](axis=0), (Tensor((3, 2), dtype),)),
            (OPERATORS["Mul"](), (Tensor((2, 3), dtype), Tensor((2, 3), dtype))),
            (OPERATORS["Transpose"](perm=(1, 0)), (Tensor((2, 3), dtype),)),
        )
        for op, inputs in asked:
            fault = pretended(framework, op, inputs, pulled)
            files.append(tmp_path / f"{op.name}-{dtype}-{pulled}.py")
            files[-1].write_text(short.source(fault, framework.about))
            assert len(files[-1].read_text().splitlines()) <= 40
    together = tmp_path / "together.py"  # the framework is slow to import
    together.write_text(
        "import contextlib, runpy\n"
        f"for file in {[str(file) for file in files]}:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        runpy.run_path(file, run_name='__main__')\n"
    )
    done = run(together)
    said = done.stdout.splitlines()
    assert len(said) == len(files), done.stdout + done.stderr
    assert all(line.startswith("gone (") for line in said), said
