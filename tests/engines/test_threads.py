"""Ranks that are threads: what they return, raise and leave behind; engines judged on them."""

import gc
import threading
import weakref
from functools import cache
from time import sleep
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from d5test.engines import threads
from d5test.engines.bars import Alone, Bars, expected
from d5test.engines.cases import CASES, Case
from d5test.engines.judging import Subject, judge
from d5test.engines.threads import together, trained_on_threads
from d5test.engines.training import Training
from d5test.outcome.fault import Fault
from tests.engines import failing, planted, planted_unused
from tests.engines.test_planted import WRONG
from tests.nightly import thinned

RANKS = 4


def test_each_rank_returns_what_it_has() -> None:
    def summed(rank: int) -> tuple[int, float]:
        x = torch.tensor(float(rank + 1))
        dist.all_reduce(x)
        return dist.get_rank(), float(x)

    assert together(3, summed) == [(0, 6.0), (1, 6.0), (2, 6.0)]
    assert not dist.is_initialized()


def test_what_a_rank_raises_frees_the_others() -> None:
    def failing_rank(rank: int) -> None:
        if rank == 1:
            raise ZeroDivisionError("on purpose")
        dist.all_reduce(torch.zeros(2))

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        together(3, failing_rank)
    assert threading.active_count() == before
    assert together(2, lambda rank: rank) == [0, 1]


def test_what_a_framework_raises_under_an_engine_of_ours_is_a_fault() -> None:
    """None of the lines is a user's, and the innermost one is the framework's."""
    subject = Subject("it", "it", "", Training(CASES["mlp-sgd"], "float32", 2), {"dp": 2})
    with pytest.raises(ValueError, match="batch_size") as caught:
        torch.nn.functional.cross_entropy(torch.ones(2, 3), torch.ones(5).long())
    error = caught.value
    assert error.__traceback__ is not None
    fault = subject.exception(error.with_traceback(error.__traceback__.tb_next), 1)
    assert isinstance(fault, Fault)
    assert fault.details["rank"] == "1"
    assert ", at functional.py:" in fault.details["message"]
    assert subject.exception(ValueError("of d5test itself"), 1) is None


def test_no_mesh_outlives_its_process_groups() -> None:
    """The caches of DTensor would keep it, and give it to the tensors of the next training."""
    meshes: list[weakref.ref[DeviceMesh]] = []

    def stepped(rank: int) -> None:
        mesh = init_device_mesh("cpu", (2,))
        meshes.append(weakref.ref(mesh))
        x = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
        (x @ x.T).sum().full_tensor()

    together(2, stepped)
    gc.collect()
    assert len(meshes) == 2
    assert all(mesh() is None for mesh in meshes)


def test_a_rank_that_is_not_done_in_time_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LIMIT", 4.0)

    def late(rank: int) -> None:
        if rank == 1:
            sleep(6)
        else:
            dist.all_reduce(torch.zeros(2))

    with pytest.raises(TimeoutError, match=r"rank 1 at .*test_threads.py:\d+ in late"):
        together(2, late)
    assert together(2, lambda rank: rank) == [0, 1]


def judged(engine: type, case: str | Case, **more: Any) -> float:
    made = engine()
    case = CASES[case] if isinstance(case, str) else case
    training = Training.of(case, "float32", RANKS, made)
    mesh = {made.axes[-1]: RANKS}
    resumed = mesh if training.case.resumed else {}
    subject = Subject("it", "it", made.version, training, mesh, resumed, threads=True, **more)
    return judge(subject, bars(training, made.rounding), trained_on_threads(engine, subject))


@cache
def bars(training: Training, rounding: str) -> Bars:
    return expected(training, rounding, Alone())


def subjects() -> list[tuple[str, str, str, str]]:
    """Engines that are wrong by what shows on threads: not by what travels."""
    found = []
    for asked, (kind, likely) in WRONG.items():
        name, case, *_ = asked.split(":")
        engine = getattr(planted, name, None) or getattr(planted_unused, name)
        if engine.threads and kind != "volume":
            found.append((name, case, kind, likely))
    return found


@pytest.mark.parametrize(("name", "case", "kind", "likely"), thinned(subjects(), 2))
def test_what_is_wrong_is_found_and_named(name: str, case: str, kind: str, likely: str) -> None:
    engine = getattr(planted, name, None) or getattr(planted_unused, name)
    with pytest.raises(Fault) as caught:
        judged(engine, case)
    assert caught.value.kind == kind
    assert likely in caught.value.details.get("looks like", "")
    assert "on 4 threads" in caught.value.headline
    assert caught.value.details["again"].startswith("pytest suites/distributed/test_engines.py ")


@pytest.mark.parametrize(
    ("engine", "case"),
    [
        (planted.Ddp, "mlp-sgd"),
        (planted.Fsdp2, "mlp-resumed-adamw"),
        (planted.TensorParallel, "mlp-sgd"),
        (planted.Zero, "mlp-clipped"),
        (planted.PiecesOfEach, "mlp-sgd"),
        (planted.OneBucket, "mlp-tied"),
        (planted.PostLocalSgd, "mlp-accumulated"),
    ],
)
def test_what_is_right_is_not_accused(engine: type, case: str) -> None:
    assert 0 < judged(engine, case) < 0.5


def test_what_no_rank_used_before_a_checkpoint_has_no_momentum() -> None:
    options = (("weight_decay", 2.0**-4),)
    case = Case("resumed-unused-decayed", "branched", options=options, resumed=True)
    assert 0 < judged(planted_unused.SearchingDdp, case) < 0.5
    with pytest.raises(Fault) as caught:
        judged(planted_unused.Decays, case)
    assert caught.value.details["looks like"] == "what no rank used has the momentum of a decay"


def test_what_a_stranger_raises_is_a_fault_with_its_line() -> None:
    with pytest.raises(Fault, match=r"ZeroDivisionError: on purpose, at failing\.py:") as caught:
        judged(failing.RaisesDdp, "mlp-sgd")
    assert caught.value.details["rank"] == "1"
