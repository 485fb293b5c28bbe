"""Each case tells the usual mistakes from what is right, and one that does not is seen."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from d5test.engines.bars import Alone, Bars, expected
from d5test.engines.cases import CASES, DTYPES, SLOTS, USUAL
from d5test.engines.checkpoints import ITSELF, Saved
from d5test.engines.dropping import Drops
from d5test.engines.models import RATE
from d5test.engines.sequential import LOSS, NORM, Noise, arithmetic_of, followed, mean, mistakes
from d5test.engines.training import Training
from d5test.plugin import engines


def bars(training: Training) -> Bars:
    return expected(training, "", Alone())


def of(name: str, dtype: str, ranks: int) -> Training:
    """A case's; of one with dropout, what ranks might have drawn."""
    training = Training(CASES[name], dtype, ranks)
    if training.case.model != "dropout":
        return training
    chance, sizes = np.random.Generator(np.random.Philox(5)), training.case.sizes
    kept = [
        [[[chance.random((n, sizes.hidden)) > RATE] for _ in range(sizes.depth)] for n in shares]
        for shares in training.shares
    ]
    orders = [[range(n) for n in shares] for shares in training.shares]
    return replace(training, drops=Drops.of(kept, orders, training.shares, RATE))


def blind(training: Training) -> Sequence[str]:
    return bars(training).blind(Alone())


@pytest.mark.parametrize("ranks", [3, 8])
@pytest.mark.parametrize("name", USUAL)
def test_a_case_rejects_every_mistake(name: str, ranks: int) -> None:
    assert blind(Training(CASES[name], "float32", ranks)) == ()


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", CASES)
def test_every_case_does(name: str, ranks: int, dtype: str) -> None:
    assert blind(of(name, dtype, ranks)) == ()


def test_a_threshold_that_never_bites_tells_nothing_of_clipping() -> None:
    case = replace(CASES["mlp-clipped"], clip=1000.0)
    assert blind(Training(case, "float32", 3)) == (
        "each rank's gradient clipped by its own norm", "the gradient is not clipped",
    )  # fmt: skip


def test_one_that_always_bites_tells_nothing_of_the_gradient_s_length() -> None:
    case = replace(CASES["mlp-clipped"], clip=0.125)
    found = blind(Training(case, "float32", 3))
    assert "a mean over W - 1 = 2 ranks" in found
    assert "a sum instead of a mean" in found


@pytest.mark.parametrize("name", CASES)
def test_the_mean_of_the_shares_gradients_is_that_of_the_joined_minibatch(name: str) -> None:
    training = of(name, "float64", 3)
    for whole, shared in zip(followed(training), followed(training, mean), strict=True):
        for key, value in whole.items():
            np.testing.assert_allclose(shared[key], value, rtol=1e-11, atol=1e-14)


def test_clipping_bites_in_some_steps_and_not_in_others() -> None:
    """On any number of ranks, though a gradient is shorter on more of them."""
    for name, ranks in product(("mlp-clipped", "mlp-tied-clipped"), (2, 3, 4, 8, 16)):
        training = Training(CASES[name], "float64", ranks)
        norms = [float(step[NORM]) for step in followed(training)]
        assert min(norms) < training.clip < max(norms)
        assert (training.clip * 2**10).is_integer()


def test_the_ensemble_strays_by_some_roundings_and_no_more() -> None:
    """In float32 a bar is between 1 and 1,000 units of roundoff of a parameter of size 1."""
    found = bars(Training(CASES["mlp-sgd"], "float32", 3))
    for step in found.bounds:
        for name, bound in step.items():
            if name not in (LOSS, NORM):
                assert 2.0**-24 < float(np.median(bound.bar)) < 1000 * 2.0**-24


def test_a_number_just_above_one_strays_in_float64() -> None:
    """Half a unit in its last place would be rounded away."""
    noise = Noise(arithmetic_of("float64"), 0)
    x = torch.linspace(1, 1.01, 64, dtype=torch.float64)
    with noise.made():
        made = x * 1
    for strayed in (made, noise.cast(x, "float64")):
        assert 0.2 < float((strayed != x).double().mean()) < 0.9


def test_a_mistake_is_told_by_its_own_name() -> None:
    training = Training(CASES["mlp-sgd"], "float32", 3)
    found = bars(training)
    for name, run in mistakes(training).items():
        assert found.looks_like(tuple(run())) == name


@pytest.mark.parametrize("name", ["mlp-resumed-sgd", "mlp-resumed-adamw"])
def test_what_a_checkpoint_brings_back_is_all_that_the_run_has(name: str) -> None:
    """The right load changes nothing; slots that PyTorch has and no mistake loses would show."""
    training = Training(CASES[name], "float64", 3)
    kept: list[Saved] = []

    def right(there: Sequence[Saved]) -> Saved:
        kept.append(there[-1])
        return there[-1]

    for straight, again in zip(followed(training), followed(training, load=right), strict=True):
        for key, value in straight.items():
            assert np.array_equal(again[key], value)
    slots = {slot for _, slot in kept[0]}
    assert slots == {ITSELF, *SLOTS[training.case.optimizer]}


def test_only_a_case_with_a_checkpoint_asks_for_its_mistakes() -> None:
    assert not [m for m in mistakes(Training(CASES["mlp-adamw"], "float32", 3)) if "loaded" in m]
    assert "step is not loaded" in mistakes(Training(CASES["mlp-resumed-adamw"], "float32", 3))


@pytest.mark.parametrize(
    "lacking, said",
    [
        ("torch", "keras-data-parallel needs torch: pip install 'd5test[torch]'"),
        ("jax", "keras-data-parallel needs jax: pip install 'd5test[jax]'"),
        ("keras", "keras-data-parallel needs keras: pip install 'd5test[tensorflow]'"),
        ("", ""),
    ],
)
def test_a_package_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, lacking: str, said: str
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda package: package != lacking)
    assert engines.Named("keras-data-parallel", "").missing == said


def test_what_has_not_led_anywhere_yet_looks_like_nothing() -> None:
    """A checkpoint of which nothing is loaded, before there is one."""
    training = Training(CASES["mlp-resumed-sgd"], "float32", 3)
    assert bars(training).looks_like(followed(training)[:1]) == ""


@pytest.mark.parametrize("name", ["mlp-sgd", "experts-sgd", "transformer-sgd"])
def test_a_layer_that_is_split_by_columns_has_a_bias(name: str) -> None:
    """Without one the columns may be in any order, as long as the rows after them are, too."""
    training = Training(CASES[name], "float32", 2)
    columns = {module for module, by in training.plan.split.items() if by == "columns"}
    assert any(f"{module}.bias" in training.shapes for module in columns)
