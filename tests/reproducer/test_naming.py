"""Which functions of the framework a headline names."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from d5test.case import Tensor
from d5test.checks import CHECKS
from d5test.outcome.fault import Fault
from d5test.reproducer import prove
from d5test.worker.public_names import names_for, public_names
from tests.reproducer.toy import Toy


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


def test_what_changes_nothing_in_a_reduced_case_alone_is_not_passed_over(
    toy: Toy, tmp_path: Path
) -> None:
    """A threshold that all numbers exceed returns them: the other function is not all there is."""
    toy.build(row="toy.add(toy.threshold(x, op.alpha, 0.0), op.alpha)")
    above = replace(toy.case(), inputs=(Tensor((1,), data=(1.5,)),))
    with toy.client() as client:
        alone = toy.fault(client, case=above)
        with pytest.raises(Fault) as reduced:
            CHECKS["forward"].run(client, above)
        reduced.value.drawn = toy.fault(client)
        reduced.value.name_calls(client)
        path, said = prove(reduced.value, client, tmp_path / "out")
    assert alone.headline.startswith("ThresholdedRelu() by toy.add as its row calls it: ")
    composed = "ThresholdedRelu() composed of toy.threshold and toy.add by its row: "
    assert reduced.value.headline.startswith(composed)
    assert (reduced.value.drawn, said) == (None, "")
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


@pytest.mark.parametrize("name", ["build", "layered"])
def test_a_function_of_which_no_tensor_comes_is_named(name: str, toy: Toy) -> None:
    """It makes a part of a model, which a method computes; by a layer of its own, or not."""
    toy.build("return kept * np.float32(1.5)", row=f"toy.{name}(op.alpha).run(x)")
    with toy.client() as client:
        fault = toy.fault(client)
    assert fault.calls.names == (f"toy.{name}",)
    assert f"composed by its row of toy.{name} and more: " in fault.headline


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
