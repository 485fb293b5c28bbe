"""Drawn trainings: alike on all ranks and for all engines, apart from one another, and telling."""

import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from math import inf, prod

import pytest

from d5test.backends.base import Unsupported
from d5test.engines import drawn
from d5test.engines.cases import CASES, STEPS, Case
from d5test.engines.catalogue import words_of
from d5test.engines.drawn import drawn_mesh, experts_are_certain, meshes, trainings
from d5test.engines.engine import World
from d5test.engines.model_parallel import Interleaved, Pipeline, TensorParallel, ZeroBubble
from d5test.engines.sequence_parallel import LossParallelism
from d5test.engines.training import Training
from tests.distributed.test_mpi import MPIRUN
from tests.engines.test_cases import blind
from tests.engines.test_planted import suite

MANY = [case for number in range(60) for case in islice(trainings(number, "float32", 4, 0), 3)]


def test_they_are_alike_wherever_they_are_drawn() -> None:
    again = [case for n in range(60) for case in islice(trainings(n, "float32", 4, 0), 3)]
    assert again == MANY
    others = [next(trainings(n, "float32", 4, seed=1)) for n in range(60)]
    assert not {*others} & {*MANY}


def test_all_that_a_case_may_have_is_drawn() -> None:
    models = Counter(case.model for case in MANY)
    assert {*models} == {*drawn.MODELS}
    features = Counter(feature for case in MANY for feature in case.features)
    for feature in ("accumulate", "clip", "tied", "uneven", "resumed", "adamw"):
        assert features[feature] >= 10, feature
    assert {case.accumulate for case in MANY} == {1, 2, 3}
    assert any(case.sizes.classes < 4 for case in MANY)  # fewer rows than ranks
    assert any(case.sizes.width % 4 for case in MANY)
    assert any(case.samples(0, 4) == 4 for case in MANY)  # one sample a rank
    assert not {case.name for case in MANY} & {*CASES}


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_no_rank_is_without_samples_in_any_part_of_a_step(ranks: int) -> None:
    for number in range(60):
        case = next(trainings(number, "float32", ranks, 0))
        for batch in Training(case, "float32", ranks).batches():
            shares = [batch.part(rank, ranks) for rank in range(ranks)]
            assert min(len(s.part(n, case.accumulate)) for s in shares
                       for n in range(case.accumulate)) > 0  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(10))
def test_most_reject_every_mistake(number: int) -> None:
    """Another is drawn where one does not, and at most five times."""
    cases = islice(trainings(number, "float32", 3, 0), 3)
    assert not all(blind(Training(case, "float32", 3)) for case in cases)


def test_experts_that_a_rounding_may_exchange_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(CASES["experts-sgd"], "float32", 3)
    assert experts_are_certain(training)
    monkeypatch.setattr(drawn, "APART", 1.0)
    assert not experts_are_certain(training)
    assert experts_are_certain(Training(CASES["mlp-sgd"], "float32", 3))


@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8])
def test_meshes_have_all_ranks_and_each_comes_once(ranks: int) -> None:
    made = meshes(("dp", "fsdp", "tp"), ranks)
    assert len({tuple(mesh.items()) for mesh in made}) == len(made)
    assert all(prod(mesh.values()) == ranks and 1 not in mesh.values() for mesh in made)
    assert len(made) == {2: 3, 3: 3, 4: 6, 6: 9, 8: 10}[ranks]


def test_an_engine_is_drawn_on_the_axis_that_it_is_named_after() -> None:
    axes = TensorParallel.axes
    made = [drawn_mesh(axes, TensorParallel.along, number, 4, 0) for number in range(40)]
    assert {*map(words_of, made)} == {"tp4", "dp2,tp2", "fsdp2,tp2"}
    any_axis = [drawn_mesh(axes, "", number, 4, 0) for number in range(40)]
    assert len({*map(words_of, any_axis)}) == 6


def refusal(engine: type, case: Case, ranks: int = 4, **mesh: int) -> str:
    training = Training(case, "float32", ranks)
    samples = [case.samples(step, ranks) for step in range(STEPS)]
    try:
        engine().check(World(0, ranks, mesh), training.model(), training.plan, samples)
    except Unsupported as reason:
        return str(reason)
    return ""


def test_what_an_engine_cannot_divide_it_refuses_before_ranks_meet() -> None:
    mlp, transformer = CASES["mlp-sgd"], CASES["transformer-sgd"]
    odd = replace(mlp, sizes=replace(mlp.sizes, hidden=9, own=3))
    few = replace(transformer, sizes=replace(transformer.sizes, words=5))
    assert refusal(TensorParallel, odd, tp=4) == "first.up (9, 10) cannot be split among 4 ranks"
    assert not refusal(TensorParallel, odd, fsdp=4)
    assert not refusal(TensorParallel, mlp, tp=4)
    assert refusal(Interleaved, mlp, pp=4) == "a model of 4 children has no 8 stages"
    assert not refusal(Interleaved, CASES["deep-sgd"], pp=4)
    assert not refusal(Pipeline, odd, pp=4)
    uneven = refusal(Pipeline, replace(odd, accumulate=2), pp=4)
    assert uneven == "12 samples are no 8 microbatches of one size"
    assert not refusal(Pipeline, odd, dp=2, pp=2)
    assert refusal(Pipeline, CASES["mlp-clipped"], tp=2, pp=2).startswith(
        "torch's clip_grad_norm_"
    )
    assert not refusal(Pipeline, CASES["mlp-clipped"], fsdp=2, pp=2)
    assert "fully_shard reduces" in refusal(Pipeline, CASES["mlp-unused"], dp=2, pp=2)
    assert not refusal(Pipeline, CASES["mlp-unused"], pp=4)
    assert "Can't detach views in-place" in refusal(ZeroBubble, CASES["deep-sgd"], tp=2, pp=2)
    assert "5 classes leave a rank none" in refusal(LossParallelism, few, tp=4)
    assert not refusal(LossParallelism, few, tp=2)
    assert not refusal(LossParallelism, transformer, tp=4)


def test_a_case_says_what_it_has_in_words() -> None:
    assert CASES["mlp-sgd"].about == "mlp, SGD"
    assert CASES["deep-sgd"].about == "mlp, SGD, depth 6"
    case = replace(CASES["mlp-clipped"], options=(("lr", 0.125),), accumulate=2, uneven=True)
    assert case.about == "mlp, SGD, lr 0.125, accumulate 2, clipped, uneven"
    assert case.clip < inf


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
def test_what_an_engine_refuses_once_ranks_have_met_is_skipped() -> None:
    words = ("--engine=tests.engines.planted_sizes:RefusesLate", "--examples=1")
    ran = suite(*words, "-k", "drawn and float32", ranks=3)
    assert "1 skipped" in ran.stdout, ran.stdout + ran.stderr
    assert "none of these models" in ran.stdout


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("LostWhereRowsAreFew", "(classes|length|hidden) 2"),
        ("FirstSampleAlone", "own 1"),
        ("DecayForgotten", "weight_decay 0.0625"),
        ("SumAlongTwoAxes", "mesh dp2,fsdp2"),
    ],
)
def test_what_shows_at_other_sizes_only_is_found(name: str, words: str) -> None:
    """No case with a name has it: all are right. The command that is printed finds it again."""
    given = (f"--engine=tests.engines.planted_sizes:{name}", "--dtype=float32")
    ran = suite(*given, "-k", "not drawn", ranks=4)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    ran = suite(*given, "-k", "drawn", "--examples=25", "-x", ranks=4)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert re.search(words, ran.stdout), ran.stdout
    (again,) = {
        line.split(" pytest ")[1] for line in ran.stdout.splitlines() if " pytest " in line
    }
    options = again.split(" -k ")[0].split()[1:], "-k", again.split(" -k ")[1]
    ran = suite(*options[0], *options[1:], ranks=4)
    assert "1 failed" in ran.stdout, ran.stdout + ran.stderr
