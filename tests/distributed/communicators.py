"""Communicators for `--comm=tests.distributed.communicators:NAME`, among them wrong ones."""

from typing import Any

from d5test.distributed.communicator import Virtual
from d5test.distributed.optimizers import DISTRIBUTED
from tests.distributed import wrong_collectives
from tests.distributed.wrong import last_step_skipped, planted, send_first
from tests.distributed.wrong_division import StaleActivations
from tests.distributed.wrong_optimizers import OneRankTooFew


class Right(Virtual):
    """As the built-in one."""

    def __init__(self, comm: Any) -> None:
        super().__init__()


class WrongRing(Virtual):
    """Its ring skips the last step, its decentralised optimizer averages over one rank too few."""

    def __init__(self, comm: Any) -> None:
        optimizers = {**DISTRIBUTED, "decentralised": OneRankTooFew}
        super().__init__(planted("ring", last_step_skipped), optimizers)


class WrongScatter(Virtual):
    """Its scatter gives each rank the next one's block."""

    def __init__(self, comm: Any) -> None:
        schedules = wrong_collectives.planted("scatter", "linear", wrong_collectives.to_the_next)
        super().__init__(schedules=schedules)


class StaleStages(Virtual):
    """Its pipelines use the activations of another microbatch."""

    division = StaleActivations

    def __init__(self, comm: Any) -> None:
        super().__init__()


class StuckRing(Virtual):
    """Its ring needs buffers."""

    def __init__(self, comm: Any) -> None:
        super().__init__(planted("ring", send_first))
