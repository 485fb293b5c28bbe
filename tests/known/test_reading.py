"""Rows of known failures: what is read, what is refused, and when a row speaks."""

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from d5test.backends.base import Unsupported
from d5test.case import Case, Tensor
from d5test.checks import CHECKS, Fault
from d5test.client.client import WorkerClient
from d5test.known.failure import Known
from d5test.known.reading import Unreadable, read, read_findings, shipped
from d5test.known.writing import table
from d5test.reference.operators import OPERATORS

Softmax = OPERATORS["Softmax"]
ROW = """
[[known]]
reason = "the first axis is wrong"
operators = ["Softmax"]
dtypes = ["float32"]
checks = ["forward"]
versions = ">=2.10,<2.15"
cases = ["Case(Softmax(axis=0), (Tensor((2, 3)),), seed=7)"]
owner = "somebody"
expires = 2999-06-30
where = { axis = 0, rank0 = { min = 2 } }
"""
FINDING = """
[[finding]]
about = "join"
reason = "momenta part"
here = "no engine joins"
package = "numpy"
versions = ">=1"
owner = "somebody"
environment = { OMP_NUM_THREADS = "2" }
reproducer = "print(1)  # 0"
prints = "1"
"""
DYING = """
import os
from d5test.backends.base import Row
from d5test.backends.numpy import Numpy

class Dying(Numpy):
    rows = {"Relu": Row(lambda op, x: os.abort())}
"""
WHERE = "where = { axis = 0, rank0 = { min = 2 } }"


def about(name: str, version: str = "2.13", device: str = "cpu", base: str = "") -> Any:
    """What is known of a backend, as far as a row looks at it."""
    return SimpleNamespace(name=name, version=version, device_name=device, base=base)


def test_a_row_covers_its_case_and_what_its_conditions_hold_for(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, ROW)
    (pinned,) = row.pinned
    assert pinned.case == Case(Softmax(axis=0), (Tensor((2, 3)),), seed=7)
    assert row.covers(pinned.case, "forward")
    assert row.covers(Case(Softmax(axis=0), (Tensor((5, 4)),)), "forward")
    assert not row.covers(Case(Softmax(axis=0), (Tensor((5, 4)),)), "batch")
    assert not row.covers(Case(Softmax(axis=0), (Tensor((5, 4), "float64"),)), "forward")
    assert not row.covers(Case(Softmax(axis=1), (Tensor((5, 4)),)), "forward")
    assert not row.covers(Case(Softmax(axis=0), (Tensor((5,)),)), "forward")
    assert not row.covers(Case(OPERATORS["LogSoftmax"](axis=0), (Tensor((5, 4)),)), "forward")
    assert not row.expired
    (alone,) = rows(tmp_path, ROW.replace(WHERE, ""))
    assert alone.covers(pinned.case, "forward")
    assert not alone.covers(Case(Softmax(axis=0), (Tensor((5, 4)),)), "forward")


@pytest.mark.parametrize(
    ("version", "speaks"),
    [("2.13.0+cpu", True), ("2.15.0", False), ("2.14.0.dev1", True), ("2.9", False), ("?", True)],
)
def test_a_row_speaks_of_versions(tmp_path: Path, version: str, speaks: bool) -> None:
    (row,) = rows(tmp_path, ROW)
    assert row.speaks_of(about("torch", version)) is speaks


def test_a_row_may_name_its_backends(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, ROW + 'backends = ["torch-compiled"]\n')
    assert row.speaks_of(about("torch-compiled"))
    assert row.speaks_of(about("torch-compiled@old/bin/python"))
    assert row.speaks_of(about("./mine.py:Mine", base="torch-compiled"))
    assert not row.speaks_of(about("torch", base="torch"))


def test_a_row_may_name_its_devices(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, ROW + 'devices = ["AVX2", "AVX512"]\n')
    assert row.speaks_of(about("torch", device="cpu (AVX512)"))
    assert not row.speaks_of(about("torch", device="cpu (DEFAULT)"))
    assert not row.speaks_of(about("torch", device="cpu (AVX5)"))


def test_a_case_is_pinned_for_each_check_in_each_of_its_dtypes(tmp_path: Path) -> None:
    text = ROW.replace('"forward"', '"forward", "low_precision"')
    text = text.replace('["float32"]', '["float64", "float32", "float16"]')
    (row,) = rows(tmp_path, text)
    assert [(p.check, p.case.dtype) for p in row.pinned] == [
        ("forward", "float64"), ("forward", "float32"), ("low_precision", "float16"),
    ]  # fmt: skip
    assert {p.case.seed for p in row.pinned} == {7}
    named = '{ case = "Case(Softmax(), (Tensor((2, 3)),))", dtypes = ["float64"] }'
    (row,) = rows(tmp_path, text.replace("cases = [", f"cases = [{named}, "))
    assert [(p.check, p.case.dtype, p.case.op.axis) for p in row.pinned[:2]] == [
        ("forward", "float64", -1), ("forward", "float64", 0),
    ]  # fmt: skip
    assert len(row.pinned) == 4


def test_a_row_expires(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, ROW.replace("2999-06-30", "2020-01-31"))
    assert row.expired
    assert row.expires == dt.date(2020, 1, 31)


def test_an_error_model_masks_nothing(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, ROW + 'model = { absolute = { exp = 2 }, arithmetic = "float32" }\n')
    inside = Case(Softmax(axis=0), (Tensor((5, 4)),))
    known = Known((row,))
    assert not known.covers(inside, "forward")
    (model,) = known.models(inside)
    assert (model.absolute, model.arithmetic) == ({"exp": 2}, "float32")
    assert known.models(Case(Softmax(axis=1), (Tensor((5, 4)),))) == ()
    (row,) = rows(tmp_path, ROW.replace(WHERE, 'raises = "axis must be"'))
    refused = Known((row,))
    assert refused.refusal(inside, "ValueError: axis must be last") == "the first axis is wrong"
    assert refused.refusal(inside, "ValueError: out of memory") == ""
    assert not refused.covers(inside, "forward")


def test_a_known_death_is_no_fault(tmp_path: Path) -> None:
    case = Case(OPERATORS["Relu"](), (Tensor((6, 8)),))
    text = ROW.replace(WHERE, 'raises = "SIGABRT"').replace("Softmax(axis=0)", "Relu()")
    (row,) = rows(tmp_path, text.replace("Softmax", "Relu"))
    (tmp_path / "mine.py").write_text(DYING)
    with WorkerClient(f"{tmp_path / 'mine.py'}:Dying") as client:
        with pytest.raises(Fault, match="the process died"):
            CHECKS["forward"].run(client, case)
        client.known = Known((row,))
        with pytest.raises(Unsupported, match="the first axis is wrong"):
            CHECKS["forward"].run(client, case)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('owner = "somebody"', "", "owner is missing"),
        ('["Softmax"]', '["Sofmax"]', "unknown operator 'Sofmax': did you mean Softmax"),
        ('"forward"', '"forwards"', "unknown check 'forwards': did you mean forward"),
        ("2999-06-30", '"soon"', "expires: expected a date, 2027-01-31, not 'soon'"),
        (">=2.10,<2.15", ">=two", "versions"),
        ("axis = 0, rank0", "axes = 0, rank0", "not an attribute of Softmax"),
        ("Case(Softmax", "Case(Relu", "Relu"),
        ('["float32"]', '["float16"]', "forward does not ask for float16"),
        ('["float32"]', '"float32"', "dtypes: expected a list of texts"),
        ('"forward"', '"forward", "low_precision"', "no case is pinned for low_precision"),
        ("reason =", "because = 1\nreason =", "unknown key 'because'"),
        ("checks =", "check = 1\nchecks =", "unknown key 'check': did you mean checks"),
        ("[[known]]", "[[knwon]]", "expected .* tables"),
        ("[[known]]", "[known", "line"),
        (ROW, "known = [1]", "row 1: expected a table"),
        (ROW, "known = 1", "expected .* tables"),
        ("axis = 0", "shape0 = { below = 5 }", "below of 'shape0' should be a list"),
        ("Case(Softmax(axis=0)", "Case(5", "5 is not an operator"),
        ("axis = 0", f"axis = {'9' * 4301}", "digits"),
        ("axis = 0", f"axis = {'[' * 10000}", "nested too deeply|[Uu]nclosed|Invalid"),
        ("2999-06-30", "2999-06-30\nmodel = 5", "model: expected a table"),
        ("2999-06-30", "2999-06-30\nmodel.ulps.expp = 5", "unknown elementary function 'expp'"),
        ("2999-06-30", "2999-06-30\nmodel.ulps.exp = nan", "expected ULPs, not nan"),
        ("2999-06-30", "2999-06-30\nmodel.ulps.exp = true", "expected ULPs, not True"),
        ("2999-06-30", "2999-06-30\nmodel.arithmetic = 'float23'", "unknown arithmetic"),
        ("2999-06-30", "2999-06-30\nmodel.formula = 'running sums'", "not a formula of Softmax"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, old: str, new: str, word: str) -> None:
    assert old in ROW
    with pytest.raises(Unreadable, match=word) as caught:
        rows(tmp_path, ROW.replace(old, new, 1))
    assert "\n" not in str(caught.value)
    assert "known.toml" in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ('owner = "somebody"', "", "finding 1: owner is missing"),
        ("reproducer =", "reproduces =", "unknown key 'reproduces': did you mean reproducer"),
        (">=1", ">=one", "versions"),
        ('{ OMP_NUM_THREADS = "2" }', '"OMP_NUM_THREADS"', "environment: expected a table"),
        ('= "2"', "= 2", "OMP_NUM_THREADS: expected a text, not 2"),
        (FINDING, "finding = 1", r"expected \[\[finding\]\] tables, not 1"),
    ],
)
def test_a_finding_that_cannot_be_read_is_one_line(
    tmp_path: Path, old: str, new: str, word: str
) -> None:
    assert old in FINDING
    file = tmp_path / "known.toml"
    file.write_text(FINDING.replace(old, new, 1))
    with pytest.raises(Unreadable, match=word) as caught:
        read_findings(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("package", "versions", "installed"),
    [("numpy", ">=1", True), ("numpy", "<1", False), ("nowhere-to-be-found", ">=1", False)],
)
def test_a_finding_speaks_of_versions(
    tmp_path: Path, package: str, versions: str, installed: bool
) -> None:
    file = tmp_path / "known.toml"
    file.write_text(ROW + FINDING.replace("numpy", package).replace(">=1", versions))
    (finding,) = read_findings(file)
    assert finding.installed is installed
    assert finding.environment == {"OMP_NUM_THREADS": "2"}
    assert len(read(file, OPERATORS, CHECKS)) == 1


def test_the_files_that_come_with_the_suites_can_be_read() -> None:
    files = sorted(shipped("torch").parent.glob("*.toml"))
    assert {"torch", "tensorflow", "jax", "onnxruntime"} <= {file.stem for file in files}
    for file in files:
        found = read(file, OPERATORS, CHECKS)
        assert all(row.witnesses and row.extent for row in found)
        # a row a fault, not one an operator or a dtype: the same words need other conditions
        faults = [(row.reason, repr(row.where)) for row in found]
        assert len({*faults}) == len(faults)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written = {
        "reason": 'a "quoted" \\ backslash\nand\x7f',
        "operators": ["Softmax"],
        "dtypes": ["float32"],
        "checks": ["forward"],
        "owner": "somebody",
        "expires": dt.date(2999, 1, 31),
        "where": {"axis": [0, None, 1]},
        "cases": [{"case": "Case(Softmax(), (Tensor((2, 3)),))", "checks": ["forward"]}],
    }
    (row,) = rows(tmp_path, table(written))
    assert row.reason == written["reason"]
    assert row.where == {"axis": [0, 1]}


def rows(folder: Path, text: str):
    file = folder / "known.toml"
    file.write_text(text)
    return read(file, OPERATORS, CHECKS)
