"""What an engine in bfloat16 does wrong is found, and what bfloat16 hides is said.

Roundings of the passes are 65,536 times as large as in float32, and so are the bars.
"""

from typing import Any

import pytest

from d5test.engines.bars import Alone, expected
from d5test.engines.cases import CASES
from d5test.engines.data_parallel import Bfloat16Fsdp2
from d5test.engines.sequential import Noise, arithmetic_of, followed
from d5test.engines.training import Training
from tests.distributed.test_mpi import MPIRUN
from tests.engines.test_planted import judged_of, suite

WRONG = {
    "ReducedInBfloat16": ("volume", "gradients do not travel in the format that it names", ""),
    "ComputedInFloat32": ("volume", "it does not give others what it should", ""),
    "SteppedInBfloat16": ("shape", "parameters are in another dtype", ""),
    "NotNamed": ("value", "", ""),
    "MeanOverTooFew": ("value", "", "a mean over W - 1 = 3 ranks"),
    "MeanOverTooMany": ("value", "", "a mean over W + 1 = 5 ranks"),
    "SamplesRepeated": ("value", "", "the last rank has rank 0's samples"),
    "ChildNotReduced": ("value", "", ""),
    "MomentumForgotten": ("value", "", ""),
    "LearningRateDoubled": ("value", "", ""),
}
"""Engine; the kind of the fault, how it is put, and what it is said to look like."""
HONEST = ("mlp-sgd", "mlp-sgd:dp2,fsdp2", "mlp-clipped", "mlp-accumulated", "mlp-uneven")
TELLING = ("mlp-sgd", "mlp-accumulated", "mlp-clipped", "mlp-tied", "mlp-uneven")
"""Cases whose bars reject every mistake in bfloat16."""


def said(asked: str) -> dict[str, Any]:
    """What was said of an engine: all are judged in one run."""
    every = (*(f"{name}:mlp-sgd" for name in WRONG), *(f"Bfloat16Fsdp2:{on}" for on in HONEST))
    return judged_of("planted_precision", *every)[asked]


def in_bfloat16(name: str, ranks: int) -> Training:
    """As `torch-fsdp2-bf16` trains."""
    return Training.of(CASES[name], "float32", ranks, Bfloat16Fsdp2)


def blind(training: Training) -> tuple[str, ...]:
    bars = expected(training, Bfloat16Fsdp2.rounding, Alone())
    return bars.blind(Alone())


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
@pytest.mark.parametrize("name", WRONG)
def test_it_is_found(name: str) -> None:
    (kind, words, likely), fault = WRONG[name], said(f"{name}:mlp-sgd")
    assert fault.get("kind") == kind, fault
    assert words in fault["headline"]
    assert fault["details"].get("looks like", "") == likely


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
@pytest.mark.parametrize("on", HONEST)
def test_what_is_right_is_not_accused(on: str) -> None:
    fault = said(f"Bfloat16Fsdp2:{on}")
    assert "kind" not in fault, fault
    assert 0 < fault["distance"] < 0.5


def test_a_case_rejects_every_mistake_in_bfloat16() -> None:
    assert blind(in_bfloat16("mlp-sgd", 2)) == ()


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", TELLING)
def test_these_cases_do(name: str, ranks: int) -> None:
    """But for one: on two ranks and on three it takes a sum for a mean, and is skipped there."""
    unseen = (f"a mean over W - 1 = {ranks - 1} ranks", "a sum instead of a mean")
    assert blind(in_bfloat16(name, ranks)) == (
        unseen if name == "mlp-clipped" and ranks < 4 else ()
    )


@pytest.mark.nightly
@pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
def test_one_that_does_not_is_skipped_and_says_what_it_takes_for_right() -> None:
    words = ("--engine=torch-fsdp2-bf16", "-k", "mlp-clipped", "-rs")
    ran = suite(*words, ranks=2)
    assert ran.returncode == 6, ran.stdout + ran.stderr  # nothing was judged
    assert "it takes for right: a mean over W - 1 = 1 ranks; a sum instead" in ran.stdout
    assert "in float64 its bars are as wide as in float32" in ran.stdout


@pytest.mark.nightly
def test_a_checkpoint_that_is_rounded_to_bfloat16_does_not_show_in_it() -> None:
    """So the engine lacks these cases."""
    assert "resumed" in Bfloat16Fsdp2.lacks
    assert "what is loaded is rounded to bfloat16" in blind(in_bfloat16("mlp-resumed-sgd", 4))


@pytest.mark.nightly
def test_adamw_hides_the_gradient_s_length_in_bfloat16() -> None:
    """So the engine lacks these cases."""
    assert "adamw" in Bfloat16Fsdp2.lacks
    assert blind(in_bfloat16("mlp-adamw", 4)) == (
        "a mean over W - 1 = 3 ranks", "a mean over W + 1 = 5 ranks",
    )  # fmt: skip


@pytest.mark.nightly
def test_by_values_alone_a_reduction_in_bfloat16_is_not_seen() -> None:
    """Each rank's gradient has such errors already: it is for the bytes to show."""
    training = in_bfloat16("mlp-sgd", 4)
    bars = expected(training, Bfloat16Fsdp2.rounding, Alone())
    noise = Noise(arithmetic_of("float32"), 100, "bfloat16", "bfloat16")
    distances = bars.distances(followed(training, noise=noise))
    assert max(d for step in distances for d in step.values()) < 1
