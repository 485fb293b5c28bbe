"""Names and options on the command line."""

from pathlib import Path

import pytest

from d5test.arguments import duration, listed
from d5test.names import BadName, chosen
from d5test.plugin import selection


def test_names_suggest() -> None:
    with pytest.raises(BadName, match="'sofmax': did you mean Softmax"):
        selection.operators(["sofmax"])
    with pytest.raises(BadName, match=r"known: a, b$"):
        chosen("check", ["zzz"], {"a": 1, "b": 2})
    assert list(chosen("check", ["b", "a"], {"a": 1, "b": 2})) == ["a", "b"]


def test_an_operator_of_a_stranger(tmp_path: Path) -> None:
    file = tmp_path / "cube.py"
    file.write_text("from d5test.case import Operator\nclass Cube(Operator): ...\nother = 1\n")
    assert list(selection.operators([f"{file}:Cube"])) == ["Cube"]
    with pytest.raises(BadName, match="not a subclass"):
        selection.operators([f"{file}:other"])
    with pytest.raises(BadName, match="AttributeError"):
        selection.operators([f"{file}:Square"])
    with pytest.raises(BadName, match="no_such_module"):
        selection.operators(["no_such_module:Square"])


def test_options_are_read() -> None:
    assert [duration(text) for text in ("90s", "2m", "1.5h", "45")] == [90, 120, 5400, 45]
    assert listed(["torch,jax", " numpy", "torch"]) == ("torch", "jax", "numpy")
