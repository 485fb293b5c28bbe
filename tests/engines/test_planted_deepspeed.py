"""DeepSpeed's stages are right, and wrong ones of them are found."""

from importlib.util import find_spec

import pytest

from tests.distributed.test_mpi import MPIRUN
from tests.engines.test_planted import judged_of

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(MPIRUN is None, reason="there is no mpirun"),
    pytest.mark.skipif(not find_spec("deepspeed"), reason="pip install 'd5test[deepspeed]'"),
]
WHOLE = "the plan was not applied: each rank has all of it"
WRONG = {
    "NotDivided:mlp-sgd": ("placement", WHOLE),
    "AllKept:mlp-sgd": ("placement", WHOLE),
    "PartsNotCounted:mlp-accumulated": ("value", ""),
    "NotClipped:mlp-clipped": ("value", "the gradient is not clipped"),
    "SumOverRanks:mlp-sgd": ("value", "a sum instead of a mean"),
    "MomentumForgotten:mlp-resumed-sgd": ("value", "the optimizer's state is not loaded"),
    "RowOff:mlp-sgd": ("value", ""),
}
HONEST = tuple(
    f"{engine}:{case}"
    for engine in ("DeepSpeed", "StageOne", "StageTwo", "StageThree")
    for case in ("mlp-sgd", "mlp-adamw", "mlp-accumulated", "mlp-uneven", "mlp-resumed-adamw")
)
ALL = (*WRONG, *HONEST)


@pytest.mark.parametrize("asked", WRONG)
def test_it_is_found(asked: str) -> None:
    (kind, likely), fault = WRONG[asked], judged_of("planted_deepspeed", *ALL)[asked]
    assert fault.get("kind") == kind, fault
    assert likely in fault["details"].get("looks like", "")


@pytest.mark.parametrize("asked", HONEST)
def test_what_is_right_is_not_accused(asked: str) -> None:
    judged = judged_of("planted_deepspeed", *ALL)[asked]
    assert "kind" not in judged, judged
    assert 0 < judged["distance"] < 0.5
