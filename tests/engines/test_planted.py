"""Engines that are wrong on purpose are found, and named; honest ones are not accused."""

import json
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest

from tests.distributed.test_mpi import MPIRUN, ROOT, under_mpirun
from tests.nightly import at_night

pytestmark = pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun")
RANKS = 4
OTHERS = ("Fsdp2", "TensorParallel", "Pipeline")
"""Engines beside `Ddp` that `failing` makes fail."""
FIRST = ("-k", "mlp-sgd-float32")
WRONG = {
    "MeanOverTooFew:mlp-sgd": ("value", "a mean over W - 1 = 3 ranks"),
    "MeanOverTooFew:mlp-adamw": ("value", "a mean over W - 1 = 3 ranks"),
    "MeanOverTooMany:mlp-adamw": ("value", "a mean over W + 1 = 5 ranks"),
    "LastBucketLost:mlp-sgd": ("value", "a lost bucket: leave.bias has rank 0's gradient alone"),
    "OwnExpert:experts-sgd": ("value", ""),
    "PastDdp:mlp-sgd": ("value", "'s gradient alone"),
    "NoSyncToTheLast:mlp-accumulated": ("value", "'s gradient alone"),
    "ThirdPartLost:mlp-accumulated": ("value", ""),
    "DecayedTwice:mlp-tied-clipped": ("value", ""),
    "CountedTwice:mlp-tied-clipped": ("value", ""),
    "ClippedByOwnNorm:mlp-clipped": ("value", "each rank's gradient clipped by its own norm"),
    "NormAfterClipping:mlp-clipped": ("value", ""),
    "NotClipped:mlp-clipped": ("value", "the gradient is not clipped"),
    "ReducedInBfloat16:mlp-sgd": ("value", ""),
    "SamplesRepeated:mlp-sgd": ("value", "the last rank has rank 0's samples"),
    "MeanOfMeans:mlp-uneven": ("value", ""),
    "MeanOfParts:transformer-uneven": ("value", ""),
    "OwnLoss:mlp-sgd": ("value", ""),
    "NotANumber:mlp-sgd": ("value", ""),
    "MomentumForgotten:mlp-sgd": ("value", ""),
    "OtherRate:mlp-sgd": ("value", ""),
    "OwnShardKept:mlp-sgd": ("value", ""),
    "StateEverywhere:mlp-sgd": ("placement", "the plan was not applied: each rank has all of it"),
    "StateOnOneRank:mlp-sgd": ("placement", ""),
    "NotSharded:mlp-sgd": ("placement", "the plan was not applied: each rank has all of it"),
    "RowOff:mlp-sgd": ("value", ""),
    "NothingSplit:mlp-sgd": ("placement", "the plan was not applied: each rank has all of it"),
    "NoAllreduceInBackward:mlp-sgd": ("value", ""),
    "NotScaled:mlp-sgd": ("value", "a sum instead of a mean"),
    "LastMicrobatchLost:mlp-sgd": ("value", "the gradient of part "),
    "LastMicrobatchLostLater:deep-sgd": ("value", ""),
    "NeverAveraged:mlp-sgd": ("value", ""),
    "AveragedTooLate:mlp-sgd": ("value", ""),
    "ReplicasApart:mlp-sgd:dp2,pp2": ("value", ""),
    "FirstShareTwice:mlp-sgd:fsdp2,pp2": ("value", ""),
    "WholeStages:mlp-sgd:tp2,pp2": ("placement", ""),
    "Resharded:deep-sgd:fsdp2,pp2": ("value", ""),
    "ParameterMissing:mlp-sgd": ("shape", ""),
    "WholeBatch:mlp-sgd": ("work", "each rank trains on all samples"),
    "WholeBatchByHand:mlp-sgd": ("work", "each rank trains on all samples"),
    "ReducedTwice:mlp-sgd": ("volume", ""),
    "GatheredTwice:mlp-sgd": ("volume", ""),
    "NotCompressed:mlp-sgd": ("volume", ""),
    "NoFormula:mlp-sgd": ("volume", ""),
    "MeanOverUsers:mlp-unused": ("value", "a mean over the ranks that use a parameter"),
    "ZeroForUnused:mlp-unused": ("value", "a gradient of zero for what no rank uses"),
    "NoneForUnused:mlp-unused": ("value", ""),
    "GradientKept:mlp-unused": ("value", ""),
    "SlotsShifted:mlp-resumed-unused": ("value", ""),
    "CountsAStep:mlp-resumed-unused": ("value", "a step is counted of what no rank used"),
}
"""Engine and case; the kind of the fault, and what it is said to look like."""
HONEST = (
    "Ddp:mlp-sgd", "Ddp:mlp-adamw", "Ddp:mlp-accumulated", "Zero:mlp-adamw", "Fsdp2:mlp-clipped",
    "Fsdp2:mlp-uneven", "Fsdp2:mlp-sgd:dp2,fsdp2", "TensorParallel:mlp-sgd",
    "TensorParallel:mlp-sgd:dp2,tp2", "Pipeline:mlp-sgd", "Pipeline:mlp-clipped",
    "OneBucket:mlp-sgd", "NamedBfloat16:mlp-sgd", "ByHand:mlp-uneven", "Float16Ddp:mlp-sgd",
    "Float16Ddp:mlp-accumulated", "SearchingDdp:mlp-sgd", "StaticDdp:mlp-adamw",
    "Recomputed:mlp-sgd", "Zero:mlp-accumulated", "Fsdp2:mlp-accumulated",
    "Fsdp2:mlp-tied", "Ddp:mlp-tied-clipped", "Pipeline:mlp-accumulated", "Interleaved:deep-sgd",
    "LoopedBreadthFirst:deep-sgd", "ZeroBubble:deep-sgd", "ZeroBubbleV:deep-sgd",
    "DualPipeV:deep-sgd", "Ddp:deep-sgd", "TensorParallel:deep-sgd:dp2,tp2",
    "SearchingDdp:mlp-unused", "SearchingDdp:mlp-resumed-unused", "Pipeline:mlp-unused",
    "OneForwardOneBackward:mlp-unused",
    "Ddp:experts-sgd", "TensorParallel:experts-sgd:dp2,tp2", "Pipeline:experts-sgd",
    "Pipeline:mlp-sgd:dp2,pp2", "Pipeline:mlp-clipped:fsdp2,pp2", "Pipeline:mlp-sgd:tp2,pp2",
    "Pipeline:mlp-accumulated:dp4", "Interleaved:deep-sgd:dp2,pp2",
    "ZeroBubble:deep-sgd:fsdp2,pp2", "ZeroBubbleV:deep-sgd:dp2,pp2",
    "DualPipeV:deep-sgd:fsdp2,pp2",
    "PostLocalSgd:mlp-accumulated", "PostLocalSgd:batchnorm-sgd",
    "Fsdp2:experts-sgd", "Ddp:residual-sgd", "Fsdp2:residual-sgd", "Pipeline:residual-sgd",
)  # fmt: skip


OTHER_FORMAT = "OtherFormat:mlp-sgd"
QUICK = (
    "LastBucketLost:mlp-sgd", "MomentumForgotten:mlp-sgd", "LastMicrobatchLost:mlp-sgd",
    "ReducedTwice:mlp-sgd", "Ddp:mlp-sgd", "Pipeline:mlp-sgd", "Float16Ddp:mlp-sgd", OTHER_FORMAT,
    "ReplicasApart:mlp-sgd:dp2,pp2", "Pipeline:mlp-sgd:dp2,pp2",
)  # fmt: skip
"""The others are judged at night; most of them by day on threads, see `test_threads`."""
LONG = tuple(asked for asked in (*WRONG, *HONEST) if asked not in QUICK)


@cache
def judged_of(modules: str, *asked: str) -> dict[str, dict[str, Any]]:
    """What was said of each engine of modules beside this one: all are judged in one run."""
    ran = under_mpirun(RANKS, "tests.engines.judged_under_mpi", modules, *asked, seconds=900)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return {each["asked"]: each for each in found}


def said(asked: str) -> dict[str, Any]:
    """What was said of an engine on a case."""
    modules = "planted,planted_unused"
    if asked in QUICK:
        return judged_of(modules, *QUICK)[asked]
    unused = "mlp-unused" in asked
    alike = (each for each in LONG if ("mlp-unused" in each) == unused)
    return judged_of(modules, *alike)[asked]


def long_at_night(every: Iterable[str]) -> list[Any]:
    """The parameters of a test, of which those in `LONG` run at night."""
    return [at_night(asked) if asked in LONG else asked for asked in every]


@pytest.mark.parametrize("asked", long_at_night(WRONG))
def test_it_is_found(asked: str) -> None:
    (kind, likely), fault = WRONG[asked], said(asked)
    assert fault.get("kind") == kind, fault
    assert likely in fault["details"].get("looks like", "")
    assert bool(likely) == ("looks like" in fault["details"])


def test_gradients_in_another_format_than_the_one_that_is_named_are_found() -> None:
    """By the format itself: bfloat16 has the bytes of float16, and is near its bars."""
    fault = said(OTHER_FORMAT)
    told = {fault["headline"]: "", **fault["details"]}
    assert any("gradients do not travel in the format that it names" in name for name in told)


@pytest.mark.parametrize("asked", long_at_night(HONEST))
def test_what_is_right_is_not_accused(asked: str) -> None:
    assert "kind" not in said(asked), said(asked)
    assert 0 < said(asked)["distance"] < 0.5


def test_a_message_names_step_parameter_ranks_and_how_to_repeat_it() -> None:
    details = said("LastBucketLost:mlp-sgd")["details"]
    assert details["step"] == "1 of 4"
    assert details["what"] == details["wrong"] == "leave.bias"
    assert details["rank"].endswith("of ranks 0, 1, 2, 3 that are too far")
    assert "ranks 1, 2, 3 from 0" in details["ranks have different results"]
    assert f"mpirun -n {RANKS} pytest " in details["again"]
    assert said("MomentumForgotten:mlp-sgd")["details"]["step"] == "2 of 4"


def suite(*words: str, ranks: int = 0) -> subprocess.CompletedProcess[str]:
    words = ("pytest", "suites/distributed/test_engines.py", "-q", *words)
    if ranks:
        return under_mpirun(ranks, *words)
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("kind", ["Ddp", *map(at_night, OTHERS)])
def test_what_a_rank_raises_is_a_fault_with_its_line_and_frees_the_others(kind: str) -> None:
    ran = suite(f"--engine=tests.engines.failing:Raises{kind}", *FIRST, ranks=3)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "ZeroDivisionError: on purpose, at failing.py:" in ran.stdout
    assert "FAILED: 1 fault of 1 cause" in ran.stdout  # rank 0 alone did not fail
    assert "ranks 0, 2 waited in gloo when rank 1 left" in ran.stdout


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("Refuses", "Unsupported: not today, at failing.py:"),
        at_night(("Ends", "SystemExit: 0, at failing.py:")),
    ],
)
def test_a_rank_that_gives_up_after_a_step_is_named(way: str, words: str) -> None:
    ran = suite(f"--engine=tests.engines.failing:{way}Ddp", *FIRST, ranks=3)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert words in ran.stdout
    assert "FAILED: 1 fault of 1 cause" in ran.stdout
    assert "Timed out" not in ran.stdout


@pytest.mark.nightly
def test_what_each_rank_refuses_at_once_is_skipped() -> None:
    """None of them leaves while others are still being connected."""
    cases = ("-k", "mlp-sgd or mlp-adamw or mlp-clipped", "--dtype=float32")
    ran = suite("--engine=torch-pp-interleaved", *cases, ranks=4)
    assert "3 skipped" in ran.stdout, ran.stdout + ran.stderr
    assert "failed" not in ran.stdout


@pytest.mark.nightly
def test_what_some_ranks_refuse_is_a_fault_at_once() -> None:
    ran = suite("--engine=tests.engines.slips:OfOneRank", *FIRST, ranks=3)
    assert "it is unsupported on some ranks, and not on others" in ran.stdout, ran.stdout
    assert "message  not of odd ranks" in ran.stdout
    assert "not done after" not in ran.stdout


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("way", "told"),
    [
        ("Exits", "(call): rank 1 left by os._exit"),
        ("IsKilled", "(call): rank 1 left by os.kill"),
        ("SegmentationFault", "(call): rank 1 died"),
        ("IsStopped", "(call): stopped for 12 s, so rank 1 was killed"),
        ("Sleeps", "left it, rank 1 hung in a call"),
        ("Spins", "left it, rank 1 hung in a call"),
        ("HangsInC", "a call that holds the GIL did nothing for 20 s, so rank 1 was killed"),
    ],
)
@pytest.mark.parametrize("kind", ["Ddp", *OTHERS])
def test_a_rank_that_is_gone_is_named(kind: str, way: str, told: str) -> None:
    ran = suite(f"--engine=tests.engines.failing:{way}{kind}", *FIRST, ranks=3)
    assert ran.returncode != 0
    assert told in ran.stderr, ran.stdout + ran.stderr
    assert "rank 1 stood at " in ran.stderr
    assert "failing.py" in ran.stderr  # of a segmentation fault by faulthandler


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--engine=torch-dpp",),
            "unknown engine 'torch-dpp': did you mean torch-pp or torch-ddp",
        ),
        (("--engine=nowhere:Mine",), "cannot be loaded"),
        (("--engine=tests.distributed.test_mpi:under_mpirun",), "is not a class"),
        (("--mesh=dp2,qp2",), "unknown axis of a mesh 'qp': known: dp, zero, fsdp, tp, pp"),
        (("--mesh=2",), "expected an axis and its size, such as dp2, got '2'"),
        (("--mesh=dp2,dp2",), "the axis dp is named twice"),
    ],
)
def test_a_mistyped_option_is_one_line(words: tuple[str, ...], said: str) -> None:
    ran = suite(*words)
    assert ran.returncode == 4
    assert said in ran.stderr


def collected(*words: str) -> set[str]:
    ran = suite(*words, "--collect-only")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return {line.rpartition("[")[2][:-1] for line in ran.stdout.splitlines() if "[" in line}


def test_among_all_engines_those_that_compile_take_a_dtype_by_turns() -> None:
    every, named = collected("--engine=all"), collected("--engine=jax-sharding,torch-tp")
    left_out = named - every
    assert {name.rpartition("-")[0] + "-float64" for name in named} <= named
    assert all(name.startswith("jax-sharding-") for name in left_out)
    trained = {name for name in named if name.startswith("jax-sharding-")}
    assert len(left_out) == len(trained) / 2
    assert {name.rpartition("-")[0] for name in trained & every} == {
        name.rpartition("-")[0] for name in trained
    }
    one = collected("--engine=all", "--dtype=float32")
    assert {name for name in named if name.endswith("-float32")} <= one


def test_without_mpirun_ranks_are_threads() -> None:
    ran = suite("-rs", "-k", "mlp-sgd")
    assert ran.returncode == 0, ran.stdout
    assert "1 passed" in ran.stdout


@pytest.mark.nightly
def test_an_engine_that_is_not_for_threads_is_skipped_and_says_how() -> None:
    ran = suite("--engine=torch-pp", *FIRST, "-rs")
    assert ran.returncode == 6, ran.stdout + ran.stderr  # nothing was judged
    assert "this engine needs ranks: mpirun -n 4 pytest ..., or pytest --np=4 ..." in ran.stdout
