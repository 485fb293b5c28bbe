"""The short form: one call as the framework's users write it, proved before it is promised."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from d5test.case import Case, Tensor
from d5test.checks import CHECKS
from d5test.checks.inquiry import Inquiry
from d5test.client.client import WorkerClient
from d5test.outcome.fault import Evidence, Fault
from d5test.reference.operators import OPERATORS
from d5test.reproducer import prove, short
from tests.nightly import at_night
from tests.reproducer.strangers import run
from tests.reproducer.toy import BACKEND, FRAMEWORK, RIGHT, Toy

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
