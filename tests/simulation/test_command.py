"""`d5test simulate` and `d5test fit` as a user calls them."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from d5test.cli import main
from d5test.cli.simulate import MESSAGES
from d5test.reference.collectives import ALLREDUCE
from d5test.simulation import gradients
from d5test.simulation.machine import Machine
from d5test.simulation.rounds import seconds
from tests.simulation.test_fit import VALUES, planted

GIVEN = ("--alpha=1us", "--beta=10GB/s", "--gamma=20GB/s")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        status = main(arguments)
    except SystemExit as left:
        status = int(left.code or 0)
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def times(tmp_path: Path) -> Path:
    """A file as pytest-benchmark writes it, of a machine that is known."""
    benchmarks = [
        {
            "fullname": f"test_time.py::test_allreduce[mpi-{t.algorithm}-{t.nbytes}]",
            "stats": {"min": t.seconds, "rounds": 1, "data": [t.seconds]},
            "extra_info": {
                "communication": {
                    "algorithm": t.algorithm, "ranks": t.ranks, "contribution_bytes": t.nbytes
                }
            },
        }
        for t in planted(2, noise=1e-3)
    ]  # fmt: skip
    path = tmp_path / "times.json"
    path.write_text(json.dumps({"benchmarks": benchmarks}))
    return path


@pytest.mark.nightly
def test_65536_ranks_sum_the_gradients_of_resnet50(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, picture = tmp_path / "told.json", tmp_path / "map.svg"
    status, out, _ = said(
        capsys, "simulate", "--ranks=65536", "--model=resnet50",
        "--algorithm=ring,halving_doubling", *GIVEN, f"-o{path}", f"-o{picture}",
    )  # fmt: skip
    assert status == 0
    assert out.startswith("given, not measured: alpha 1 us")
    told = json.loads(path.read_text())
    assert sum(told["items"]) == 25_557_032
    machine = Machine(1e-6, 1e-10, 5e-11)
    for row in told["rows"]:
        name = row["algorithm"]
        want = seconds(name, 65536, told["items"], machine).sum()
        assert row["seconds"] == pytest.approx(want, rel=1e-12)
        assert row["bytes"] == 4 * sum(ALLREDUCE[name].items(65536, n) for n in told["items"])
    cells = [r for r in ET.parse(picture).iter() if r.tag.endswith("}title")]
    assert len(cells) == 16 * 15
    assert any((cell.text or "").startswith("ring: ") for cell in cells)
    assert any((cell.text or "").startswith("halving_doubling: ") for cell in cells)


def test_links_that_are_shared_cost_time(capsys: pytest.CaptureFixture[str]) -> None:
    alone, shared = (
        said(capsys, "simulate", "--ranks=16", "--bytes=1MiB", "--algorithm=halving_doubling",
             *GIVEN, *more)[1].splitlines()
        for more in ((), ("--node=4", "--uplink=10GB/s"))
    )  # fmt: skip
    assert shared[1] == "nodes of 4 ranks share a link of 1e+10 B/s"
    assert alone[-1] != shared[-1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algorithm=rign", *GIVEN], "unknown algorithm 'rign': did you mean ring?"),
        (["--model=resnet5", *GIVEN], "unknown model 'resnet5': did you mean resnet50"),
        (["--alpha=1", "--beta=1GB/s"], "argument --alpha: expected a time such as 1.5us"),
        (["--alpha=1us", "--beta=10Gb"], "argument --beta: expected a rate such as 10GB/s"),
        (["--alpha=1us", "--beta=nanGB/s"], "argument --beta: expected a rate"),
        (["--alpha=1us"], "give --alpha=1us --beta=10GB/s, or measured times"),
        (["--bytes=3B", *GIVEN], "--bytes=3B is no whole number of float32"),
        (["--bytes=1.5B", *GIVEN], "argument --bytes: expected whole bytes, got '1.5B'"),
        (["--ranks=0", *GIVEN], "argument --ranks: expected a whole number above 0"),
        (["--ranks=9999999", *GIVEN], "argument --ranks: expected at most 1048576 ranks"),
        (["--overhead=2us", *GIVEN], "--overhead is a part of alpha, and is more than it"),
        (["--node=4", *GIVEN], "--node and --uplink are given together"),
        (["--node=4", "--uplink=1GB/s", "--algorithm=ring", *GIVEN], f"at most {MESSAGES}"),
        (["-omap.png", *GIVEN], "--output=map.png: its name ends with none of .svg, .json"),
        (["-omap.svg", "--ranks=1", *GIVEN], "--output: a picture begins at 2 ranks"),
        (["--times=none.json"], "there is no such file"),
        (["--times=none.json", "--alpha=1us"], "--alpha and --times: the times say it"),
        (["--rank=3", "--alpah=1us"], "unrecognized arguments: --alpah=1us"),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    status, _, err = said(capsys, "simulate", *arguments)
    assert status == 2
    assert words in err
    assert err.count("\n") == 1


def test_a_fit_says_what_it_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, times: Path
) -> None:
    path = tmp_path / "fit.json"
    status, out, _ = said(capsys, "fit", str(times), f"-o{path}")
    assert status == 0
    assert out.splitlines()[-1] == "within 25%: 24 of 24, predicted by fits to the other sizes"
    told: Any = json.loads(path.read_text())
    assert {name.split()[0] for name in told["parameters"]} == VALUES.keys()
    for name, parameter in told["parameters"].items():
        assert parameter["value"] == pytest.approx(VALUES[name.split()[0]], rel=0.05)
    status, out, _ = said(capsys, "simulate", f"--times={times}", "--ranks=8", "--bytes=1MiB")
    assert status == 0
    assert out.startswith(f"fitted to {times}\nalpha  ")


def test_times_without_algorithms_are_told(
    capsys: pytest.CaptureFixture[str], times: Path
) -> None:
    told = json.loads(times.read_text())
    for benchmark in told["benchmarks"]:
        del benchmark["extra_info"]["communication"]["algorithm"]
    times.write_text(json.dumps(told))
    status, _, err = said(capsys, "fit", str(times))
    assert (status, err.count("\n")) == (2, 1)
    assert "0 times of allreduces by our schedules" in err


def test_resnet50_has_the_parameters_that_are_published() -> None:
    shapes = gradients.resnet50()
    assert (len(shapes), sum(gradients.model("resnet50"))) == (161, 25_557_032)


def test_buckets_hold_all_gradients_from_the_last_layer_on() -> None:
    assert gradients.buckets([5, 1, 2, 3], nbytes=16) == [5, 6]
    assert gradients.buckets([5, 1, 2, 3], nbytes=1000) == [11]
    assert gradients.buckets([5, 1, 2, 3], nbytes=4) == [3, 2, 1, 5]
