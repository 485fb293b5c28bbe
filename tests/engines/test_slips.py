"""What whoever writes an engine reads after a slip, and in the summary."""

import pytest

from d5test.engines.cases import CASES
from d5test.engines.judging import Subject
from d5test.engines.training import Training
from d5test.names import BadName
from d5test.outcome.tally import Tally, causes
from d5test.plugin.engines import _named
from tests.engines.test_planted import suite


@pytest.fixture(scope="module")
def said() -> str:
    names = ("OtherAxis", "OtherFeature", "NoLoss", "NoNorm", "OwnSplit")
    asked = ",".join(f"tests.engines.slips:{name}" for name in names)
    return suite(f"--engine={asked}", "-k", "mlp-clipped-float32").stdout


@pytest.mark.parametrize(
    "words",
    [
        "unknown axis in `axes` 'data': known: dp, zero, fsdp, tp, pp",
        "unknown feature in `lacks` 'accumulation': did you mean accumulate?",
        "NoLoss.step returned None, and owes the mean loss of the joined minibatch, a float",
        "OwnSplit.split is a list, and d5test reads a Mapping by that name",
        "looks like  the engine does not set `norm`",
        "NoNorm: it is not where the sequential run is on 4 threads",
    ],
)
def test_a_slip_is_named(said: str, words: str) -> None:
    assert words in said, said


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("NoStart", "has no start, no wrap, no step, no parameters, no placements: see docs/"),
        ("Made", "is made without arguments: missing a required argument: 'ranks'"),
        ("Rule", "is not a subclass of d5test.engines.engine.Engine"),
        ("nan", "is not a class"),
    ],
)
def test_what_is_no_engine_is_refused_before_anything_runs(name: str, words: str) -> None:
    with pytest.raises(BadName, match=f"engine 'tests.engines.slips:{name}' {words}"):
        _named(f"tests.engines.slips:{name}")


@pytest.mark.nightly
def test_a_mesh_without_its_axis_would_be_another_engine() -> None:
    chosen = ("-k", "mlp-sgd-float32 or mlp-resumed-sgd-float32")
    ran = suite("--engine=torch-tp", "--mesh=dp2", "--resume-mesh=tp2", *chosen)
    assert "1 passed, 1 skipped" in ran.stdout, ran.stdout
    assert "without tp it would be another engine: --mesh=tp2" in ran.stdout


def test_what_is_wrong_in_many_trainings_is_one_cause() -> None:
    tallies = []
    for name in ("mlp-sgd", "deep-sgd"):
        training = Training(CASES[name], "float32", 4)
        subject = Subject("./mine.py:Mine", "Mine", "torch 2", training, {"dp": 4}, {})
        tally = Tally("Mine", "engine", name, "float32", "torch 2")
        for kind, what in (("value", "it is off"), ("placement", "it is elsewhere")):
            tally.count_fault(subject.fault(kind, what, {}))
        tallies.append(tally)
    found = causes(tallies)
    assert [cause.headline for cause in found] == [
        "Mine: it is off on 4 ranks, torch 2",
        "Mine: it is elsewhere on 4 ranks, torch 2",
    ]
    assert {cause.cells for cause in found} == {"deep-sgd, mlp-sgd; engine; float32"}
