"""`-p tests.distributed.sleeping_in_gloo`: rank 1 sleeps for ever in gloo's third allreduce."""

import time
from datetime import timedelta
from itertools import count
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch.distributed as dist

    from d5test.distributed import gloo

    calls, own = count(1), dist.all_reduce

    def sleeping(*given: Any, **named: Any) -> Any:
        if next(calls) == 3 and dist.get_rank() == 1:
            time.sleep(600)
        return own(*given, **named)

    monkeypatch.setattr(gloo, "COLLECTIVE", timedelta(seconds=2))
    monkeypatch.setattr(dist, "all_reduce", sleeping)
