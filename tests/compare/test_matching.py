"""Which benchmarks are compared: lost, vanished, new, renamed, changed ones are told apart."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.compare.files import benchmark, name, record, sides, write

Compared = Callable[..., Any]


def test_a_lost_operator_is_named(tmp_path: Path, compared: Compared) -> None:
    gone = "operators/test_time.py::test_time[relu-forward-torch]"
    kept = benchmark(name(0), 1e-3)
    write(tmp_path / "old.json", [kept, benchmark(gone, 2e-3, operator="Relu")])
    why = {gone: "failed: ZeroDivisionError in call: division by zero"}
    write(tmp_path / "new.json", [kept], untimed=why)
    answer = compared(tmp_path / "old.json", tmp_path / "new.json")
    assert answer.status == 1
    assert answer.found["operators_lost"] == ["Relu"]
    assert answer.found["vanished"] == [{"name": gone, "operator": "Relu", "reason": why[gone]}]
    assert "operator lost: Relu" in answer.found["reason"]
    shown = compared(tmp_path / "old.json", tmp_path / "new.json", "--format=text").out
    assert f"relu-forward-torch: {why[gone]}" in shown


def test_the_run_that_was_to_have_it_says_why(tmp_path: Path, compared: Compared) -> None:
    gone, kept = "operators/test_corpus.py::test_corpus[relu]", [benchmark(name(0), 1e-3)]
    write(tmp_path / "old1.json", kept)
    write(tmp_path / "old2.json", [benchmark(gone, 2e-3, operator="Relu")])
    write(tmp_path / "new1.json", kept)
    write(tmp_path / "new2.json", [], untimed={gone: "failed: it raised"})
    answer = compared(tmp_path / "old*.json", tmp_path / "new*.json")
    (told,) = answer.found["vanished"]
    assert (told["name"], told["reason"]) == (gone, "failed: it raised")


def test_a_benchmark_that_one_of_the_runs_has_not(tmp_path: Path, compared: Compared) -> None:
    old, new = sides(tmp_path, runs=2, count=2)
    write(tmp_path / "new1.json", [benchmark(name(0), 1e-3, shapes=[[3, 5], [5, 7]])])
    answer = compared(old, new)
    (gone,) = answer.found["vanished"]
    assert (answer.status, gone["name"]) == (1, name(1))
    assert "in 1 of 2 runs" in gone["reason"]


def test_new_renamed_and_changed(tmp_path: Path, compared: Compared) -> None:
    shapes = [[[3, 5], [5, n]] for n in (7, 8, 9, 11)]
    before = [benchmark(name(b), 1e-3, shapes=shapes[b]) for b in range(2)]
    after = [
        benchmark(name(0), 1e-3, shapes=shapes[3]),
        benchmark("renamed", 1e-3, shapes=shapes[1]),
        benchmark("added", 1e-3, shapes=shapes[2]),
    ]
    write(tmp_path / "old.json", before)
    write(tmp_path / "new.json", after)
    found = compared(tmp_path / "old.json", tmp_path / "new.json").found
    assert found["changed"] == [name(0)]
    assert found["renamed"] == [[name(1), "renamed"]]
    assert found["new"] == ["added"]
    assert found["vanished"] == []
    assert {d["benchmark"] for d in found["decisions"]} == {"renamed"}


def test_two_interpreters_of_a_backend_are_one(tmp_path: Path, compared: Compared) -> None:
    for side in ("old", "new"):
        backend = {**record(1.0)["backend"], "name": f"torch@{side}/bin/python"}
        found = benchmark(f"test_time[gemm-torch@{side}/bin/python]", 1e-3, backend=backend)
        write(tmp_path / f"{side}.json", [found])
    found = compared(tmp_path / "old.json", tmp_path / "new.json").found
    assert len(found["renamed"]) == 1
    assert found["vanished"] == []
