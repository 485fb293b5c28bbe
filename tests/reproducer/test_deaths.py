"""A process that dies, or hangs, in a call: that call is named, and its reproducer is short."""

from pathlib import Path
from typing import Any

import pytest

from d5test.case import Case, Tensor
from d5test.client.client import WorkerClient
from d5test.reference.operators import OPERATORS
from d5test.reproducer import prove, short
from tests.reproducer.toy import ABORT, ROW, Toy


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
