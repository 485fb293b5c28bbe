"""Running statistics that are wrong on purpose are found, and named; honest ones are not accused.

Not here: `SyncBatchNorm`, which PyTorch has for GPUs only.
"""

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from d5test.engines.buffers import WAYS, mistaken
from d5test.engines.cases import CASES, DTYPES
from d5test.engines.models import MOMENTUM
from d5test.engines.sequential import followed, mean
from d5test.engines.training import Training
from tests.distributed.test_mpi import MPIRUN
from tests.engines.test_cases import blind
from tests.engines.test_planted import judged_of

CASE = CASES["batchnorm-sgd"]
SHARE = "statistics are those of a rank's own share"
JOINED = "statistics are those of the joined minibatch"
WRONG = {
    "NotMoved": ("value", "running statistics are not moved"),
    "NotCounted": ("value", ""),
    "Recomputed": ("value", "running statistics are moved twice in a step"),
    "MovedTwice": ("value", ""),
    "Biased": ("value", "the running variance is biased"),
    "NotBroadcast": ("value", SHARE),
    "FromLastRank": ("value", ""),
    "MeanOfStatistics": ("value", "statistics are the mean of the shares'"),
    "Joined": ("value", JOINED),
    "JoinedForward": ("value", ""),
    "NotJoined": ("value", SHARE),
    "BroadcastFsdp2": ("value", "statistics are those of a share, moved from rank 0's"),
    "BufferMissing": ("shape", ""),
}
"""Engine; the kind of the fault, and what it is said to look like."""
HONEST = (
    "Ddp", "StaticDdp", "SearchingDdp", "Float16Ddp", "Zero", "Fsdp2", "Fsdp2:dp2,fsdp2",
    "NamedJoined", "NamedOwn",
)  # fmt: skip


def said(asked: str) -> dict[str, Any]:
    """What was said of an engine: all are judged in one run."""
    name, _, mesh = asked.partition(":")
    every = [f"{name}:{CASE.name}" for name in WRONG]
    for each in HONEST:
        first, _, rest = each.partition(":")
        every.append(f"{first}:{CASE.name}" + f":{rest}" * bool(rest))
    return judged_of("planted_buffers", *every)[f"{name}:{CASE.name}" + f":{mesh}" * bool(mesh)]


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
@pytest.mark.parametrize("name", WRONG)
def test_it_is_found(name: str) -> None:
    (kind, likely), fault = WRONG[name], said(name)
    assert fault.get("kind") == kind, fault
    assert fault["details"].get("looks like", "") == likely


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
@pytest.mark.parametrize("name", HONEST)
def test_what_is_right_is_not_accused(name: str) -> None:
    assert "kind" not in said(name), said(name)
    assert 0 < said(name)["distance"] < 0.5


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("statistics", ["own", "joined"])
def test_whatever_an_engine_says_the_case_rejects_every_mistake(
    statistics: str, dtype: str
) -> None:
    assert blind(Training(CASE, dtype, 3, statistics)) == ()


def by_hand(x: torch.Tensor) -> tuple[Any, Any]:
    """The mean and the unbiased variance of samples (n, width), by NumPy."""
    array = x.detach().numpy()
    return array.mean(0), array.var(0, ddof=1)


@pytest.mark.parametrize("statistics", WAYS)
def test_the_first_step_moves_zero_and_one_by_the_statistics_of_what_enters(
    statistics: str,
) -> None:
    """Of the share, or of all samples: computed here, by the definition."""
    training = Training(CASE, "float64", 3, statistics)
    model, batch = training.model(), training.batches()[0]
    after = followed(training)[0]
    for rank in range(3):
        x = batch.x if statistics == "joined" else batch.part(rank, 3).x
        average, variance = by_hand(model.first.up(model.enter(x)))
        ran = {n: after[training.buffer(f"first.between.{n}", rank)] for n in (
            "running_mean", "running_var", "num_batches_tracked")}  # fmt: skip
        np.testing.assert_allclose(ran["running_mean"], MOMENTUM * average, rtol=1e-12)
        np.testing.assert_allclose(ran["running_var"], 1 + MOMENTUM * (variance - 1), rtol=1e-12)
        assert ran["num_batches_tracked"] == 1


def test_ranks_differ_as_long_as_the_last_step_was_on_their_own_samples() -> None:
    """By the rule of moving, from what rank 0 or the rank itself had."""
    runs = {way: followed(Training(CASE, "float64", 3, way)) for way in ("own", "first")}
    name = Training(CASE, "float64", 3).buffer("first.between.running_mean", 2)
    zero = Training(CASE, "float64", 3).buffer("first.between.running_mean", 0)
    own, first = runs["own"], runs["first"]
    assert np.array_equal(own[0][name], first[0][name])
    gap = (1 - MOMENTUM) * (own[0][zero] - own[0][name])
    np.testing.assert_allclose(first[1][name] - own[1][name], gap, rtol=1e-9)
    for step in range(4):
        for parameter in Training(CASE, "float64", 3).shapes:
            assert np.array_equal(own[step][parameter], first[step][parameter])


@pytest.mark.parametrize("statistics", WAYS)
def test_a_mistake_is_another_run(statistics: str) -> None:
    training = Training(CASE, "float64", 3, statistics)
    right = followed(training)
    for name, way in mistaken(training).items():
        wrong = followed(training, way=way)
        assert any(
            not np.allclose(wrong[-1][key], value, rtol=1e-6) for key, value in right[-1].items()
        ), name


def test_samples_that_are_joined_have_one_gradient_however_it_is_added_up() -> None:
    training = Training(CASE, "float64", 3, "joined")
    for whole, shared in zip(followed(training), followed(training, mean), strict=True):
        for key, value in whole.items():
            np.testing.assert_allclose(shared[key], value, rtol=1e-11, atol=1e-14)


def test_torch_has_no_synchronised_normalisation_of_cpus(tmp_path: Any) -> None:
    """What the page says; where this fails, `SyncBatchNorm` can be an engine."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model = nn.Sequential(nn.Linear(2, 3), nn.SyncBatchNorm(3))
        with pytest.raises(ValueError, match="SyncBatchNorm layers only work with GPU modules"):
            nn.parallel.DistributedDataParallel(model)
    finally:
        dist.destroy_process_group()
