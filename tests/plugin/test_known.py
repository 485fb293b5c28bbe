"""Rows of known failures: what is read, what is refused, and when a row speaks."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from d5test.arguments import duration, listed
from d5test.case import Case, Tensor
from d5test.checks import CHECKS
from d5test.plugin import names
from d5test.plugin.known import read, shipped
from d5test.reference.operators import OPERATORS

ROW = """
[[known]]
check = "forward"
operator = "Softmax"
dtype = ["float32"]
versions = ">=2.10,<2.15"
case = "Case(Softmax(axis=0), (Tensor((2, 3)),), seed=7)"
reason = "the first axis is wrong"
owner = "somebody"
expires = 2999-06-30
where = { axis = 0, rank0 = { min = 2 } }
"""


def test_a_row_covers_its_case_and_what_its_conditions_hold_for(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, ROW)
    softmax = OPERATORS["Softmax"]
    assert row.covers(row.case)
    assert row.covers(Case(softmax(axis=0), (Tensor((5, 4)),)))
    assert not row.covers(Case(softmax(axis=1), (Tensor((5, 4)),)))
    assert not row.covers(Case(softmax(axis=0), (Tensor((5,)),)))
    assert not row.expired
    (alone,) = rows(tmp_path, ROW.replace("where = { axis = 0, rank0 = { min = 2 } }", ""))
    assert alone.covers(alone.case)
    assert not alone.covers(Case(softmax(axis=0), (Tensor((5, 4)),)))


@pytest.mark.parametrize(
    ("version", "speaks"),
    [("2.13.0+cpu", True), ("2.15.0", False), ("2.14.0.dev1", True), ("2.9", False), ("?", True)],
)
def test_a_row_speaks_of_versions(tmp_path: Path, version: str, speaks: bool) -> None:
    (row,) = rows(tmp_path, ROW)
    assert row.speaks_of("torch", version) is speaks


def test_a_row_may_name_its_backends(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, ROW + 'backend = "torch-compiled"\n')
    assert row.speaks_of("torch-compiled", "2.13")
    assert not row.speaks_of("torch", "2.13")


def test_a_row_may_name_its_devices(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, ROW + 'device = ["AVX2", "AVX512"]\n')
    assert row.speaks_of("torch", "2.13", "cpu (AVX512)")
    assert not row.speaks_of("torch", "2.13", "cpu (DEFAULT)")
    assert not row.speaks_of("torch", "2.13", "cpu (AVX5)")


def test_a_row_may_name_several_checks(tmp_path: Path) -> None:
    found = rows(tmp_path, ROW.replace('"forward"', '["forward", "batch"]'))
    assert [row.check for row in found] == ["forward", "batch"]
    assert found[0].case == found[1].case


def test_a_row_expires(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, ROW.replace("2999-06-30", "2020-01-31"))
    assert row.expired
    assert row.expires == dt.date(2020, 1, 31)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('owner = "somebody"', "", "owner is missing"),
        ('"Softmax"', '"Sofmax"', "unknown operator 'Sofmax'"),
        ('"forward"', '"forwards"', "unknown check 'forwards'"),
        ("2999-06-30", '"soon"', "expected a date"),
        (">=2.10,<2.15", ">=two", "versions"),
        ("axis = 0, rank0", "axes = 0, rank0", "no attribute of Softmax"),
        ("Case(Softmax", "Case(Relu", "no operator|Relu"),
        ('["float32"]', '["float16"]', "which the row is not about"),
        ("reason =", "because = 1\nreason =", "unknown key 'because'"),
        ("[[known]]", "[[knwon]]", "expected .* tables"),
        ("[[known]]", "[known", "line"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, old: str, new: str, word: str) -> None:
    assert old in ROW
    with pytest.raises(pytest.UsageError, match=word) as caught:
        rows(tmp_path, ROW.replace(old, new, 1))
    assert "\n" not in str(caught.value)
    assert "known.toml" in str(caught.value)


def test_the_files_that_come_with_the_suites_can_be_read() -> None:
    files = sorted(shipped("torch").parent.glob("*.toml"))
    assert {"torch", "tensorflow", "jax", "onnxruntime"} <= {file.stem for file in files}
    for file in files:
        read(file, OPERATORS, CHECKS)


def test_names_suggest() -> None:
    with pytest.raises(pytest.UsageError, match="'sofmax': did you mean Softmax"):
        names.operators(["sofmax"])
    with pytest.raises(pytest.UsageError, match=r"known: a, b$"):
        names.chosen("check", ["zzz"], {"a": 1, "b": 2})
    assert list(names.chosen("check", ["b", "a"], {"a": 1, "b": 2})) == ["a", "b"]


def test_an_operator_of_a_stranger(tmp_path: Path) -> None:
    file = tmp_path / "cube.py"
    file.write_text("from d5test.case import Operator\nclass Cube(Operator): ...\nother = 1\n")
    assert list(names.operators([f"{file}:Cube"])) == ["Cube"]
    with pytest.raises(pytest.UsageError, match="not a subclass"):
        names.operators([f"{file}:other"])
    with pytest.raises(pytest.UsageError, match="AttributeError"):
        names.operators([f"{file}:Square"])
    with pytest.raises(pytest.UsageError, match="no_such_module"):
        names.operators(["no_such_module:Square"])


def test_options_are_read() -> None:
    assert [duration(text) for text in ("90s", "2m", "1.5h", "45")] == [90, 120, 5400, 45]
    assert listed(["torch,jax", " numpy", "torch"]) == ("torch", "jax", "numpy")


def rows(folder: Path, text: str):
    file = folder / "known.toml"
    file.write_text(text)
    return read(file, OPERATORS, CHECKS)
