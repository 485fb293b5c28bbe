"""`d5test.native.compile`: a file as one of d5test's operators."""

from pathlib import Path

import numpy as np
import pytest

import d5test
from d5test.cli import main
from d5test.native import compile as compiled
from d5test.native.library import NativeError
from d5test.native.operators import UnfitReference


@pytest.fixture
def ipow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["native", "new", "IPow"]) == 0
    return tmp_path / "ipow.cpp"


def test_its_reference_judges_any_function(ipow: Path) -> None:
    op = compiled(ipow)
    assert op(power=3).attributes == {"power": 3}
    assert repr(op(power=3)) == "IPow(power=3)"
    d5test.check(lambda x: x * x * x, like=op(power=3))
    with pytest.raises(AssertionError, match="IPow"):
        d5test.check(lambda x: x * x, like=op(power=3))


def test_the_slides_class_is_the_reference_word_for_word(ipow: Path) -> None:
    op = compiled(ipow)(power=3)
    x, dy = np.array([2.0, -3.0]), np.array([1.0, 10.0])
    (y,) = op(x)
    assert np.array_equal(y, [8, -27])
    assert np.array_equal(op.vjp((dy,), (x,), (y,))[0], [12, 270])


def test_a_reference_with_other_attributes_is_a_sentence(ipow: Path) -> None:
    path = ipow.with_suffix(".py")
    path.write_text(path.read_text().replace("power", "exponent"))
    with pytest.raises(
        UnfitReference, match=r"takes exponent, and ipow\.cpp registers the attribut"
    ):
        compiled(ipow)


def test_a_reference_of_another_name_is_a_sentence(ipow: Path) -> None:
    path = ipow.with_suffix(".py")
    path.write_text(path.read_text().replace("IPowOp", "Power"))
    with pytest.raises(UnfitReference, match="has no class IPow or IPowOp"):
        compiled(ipow)


def test_a_file_with_several_operators_is_loaded_and_not_compiled_to_one() -> None:
    with pytest.raises(NativeError, match="registers Product, Thin, Relu"):
        compiled(Path(__file__).with_name("shapes.cpp"))
