"""What the suites write is what the schema says, and what the schema says is checked."""

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from d5test.compare.reading import read
from d5test.distributed.scaling import Scaling
from d5test.metric import Metric, Sample
from tests.compare.files import benchmark, plain, write

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "d5test" / "compare" / "schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


@pytest.fixture
def written(pytester: pytest.Pytester) -> Path:
    """A file of the suite, of a backend that fails in one of its operators."""
    pytester.makepyfile(
        half="from d5test.backends.base import Row\n"
        "from d5test.backends.numpy import Numpy\n"
        "class Half(Numpy):\n"
        "    rows = {'Gemm': Row(lambda op, *x: 1 / 0), 'Softmax': Numpy.rows['Softmax']}\n"
    )
    pytester.runpytest_subprocess(
        f"{ROOT}/suites/operators/test_time.py", "--backend=numpy,./half.py:Half",
        "--operator=Gemm", "--benchmark-json=times.json",
    )  # fmt: skip
    return pytester.path / "times.json"


def test_the_schema_is_one() -> None:
    VALIDATOR.check_schema(SCHEMA)


def test_what_the_suite_writes_is_valid_and_read(written: Path) -> None:
    content = json.loads(written.read_text())
    VALIDATOR.validate(content)
    (run,) = read(str(written))
    samples = [set(entry.samples) for entry in run.entries.values()]
    assert samples == [{"time", "right", "error / bar", "share judged", "resident memory"}] * 4
    assert content["d5test"]["outcomes"] == {"passed": 4, "failed": 4, "error": 0, "skipped": 0}
    assert len(run.untimed) == 4
    for name, why in run.untimed.items():
        assert "gemm" in name
        assert why.startswith("failed: gemm-")
        assert "ZeroDivisionError" in why
    assert "numpy: version" in run.facts
    assert "load" in run.facts


def scaling() -> dict[str, Any]:
    return Scaling(
        optimizer="ring", mode="weak", ranks=2, samples=32, network="mlp", parameters=7,
        seconds=[1e-3, 2e-3], compute=[1e-3] * 2, messages=[3, 4], bytes=[8, 9], backend={},
        communicator="MPI",
    ).to_json()  # fmt: skip


def test_other_entries_are_valid(tmp_path: Path) -> None:
    sample = Sample(Metric("hits", "1", "higher", "exact"), (3.0,))
    sent = {"ranks": 2, "contribution_bytes": 8, "messages": 4, "bytes": 64, "imbalance": 1.0}
    entries = [
        plain("scaling", 1e-3, scaling=scaling()),
        plain("communication", 1e-3, communication=sent),
        plain("stranger", 1e-3, metrics=[sample.to_json()]),
    ]
    path = write(tmp_path / "run.json", entries)
    VALIDATOR.validate(json.loads(path.read_text()))
    (run,) = read(str(path))
    found = {name: set(entry.samples) - {"time"} for name, entry in run.entries.items()}
    assert found == {
        "scaling": {"messages sent", "bytes sent"},
        "communication": {"messages sent", "bytes sent"},
        "stranger": {"hits"},
    }


BROKEN: list[tuple[tuple[Any, ...], Any]] = [
    (("fullname",), 3),
    (("stats", "min"), -1),
    (("stats", "rounds"), 0),
    (("extra_info", "d5test", "schema"), 2),
    (("extra_info", "d5test", "direction"), "sideways"),
    (("extra_info", "d5test", "seconds"), []),
    (("extra_info", "d5test", "judgement", "share"), 1.5),
    (("extra_info", "d5test", "judgement", "arithmetic"), "Q"),
    (("extra_info", "d5test", "preempted"), [-1]),
    (("extra_info", "d5test", "kernels"), [1]),
    (("extra_info", "metrics"), [{"name": "nameless"}]),
]


@pytest.mark.parametrize(("path", "value"), BROKEN)
def test_the_schema_refuses(path: tuple[str, ...], value: Any) -> None:
    entry = json.loads(json.dumps(benchmark("good", 1e-3)))
    VALIDATOR.validate({"benchmarks": [entry]})
    broken = copy.deepcopy(entry)
    inner: Any = broken
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    assert not VALIDATOR.is_valid({"benchmarks": [broken]})
