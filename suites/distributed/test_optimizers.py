"""Distributed optimizers over any base optimizer: what a step is, who has seen whose gradient."""

from collections.abc import Callable

import pytest

from d5test.distributed.probes import (
    at_rest,
    consensus,
    conserved,
    one_step,
    paid_back,
    replay,
    replicas,
    sequential,
    shards,
    staleness,
    traffic,
)
from d5test.fixtures.comm import Body


@pytest.mark.collective("one_step")
def test_one_step(each_case: Callable[[Body], None]) -> None:
    each_case(one_step)


@pytest.mark.collective("sequential")
def test_sequential(each_case: Callable[[Body], None]) -> None:
    each_case(sequential)


@pytest.mark.collective("replicas")
def test_replicas(each_case: Callable[[Body], None]) -> None:
    each_case(replicas)


@pytest.mark.collective("staleness")
def test_staleness(each_case: Callable[[Body], None]) -> None:
    each_case(staleness)


@pytest.mark.collective("traffic")
def test_traffic(each_case: Callable[[Body], None]) -> None:
    each_case(traffic)


@pytest.mark.collective("paid_back")
def test_paid_back(each_case: Callable[[Body], None]) -> None:
    each_case(paid_back)


@pytest.mark.collective("replay")
def test_replay(each_case: Callable[[Body], None]) -> None:
    each_case(replay)


@pytest.mark.collective("shards")
def test_shards(each_case: Callable[[Body], None]) -> None:
    each_case(shards)


@pytest.mark.collective("at_rest")
def test_at_rest(each_case: Callable[[Body], None]) -> None:
    each_case(at_rest)


@pytest.mark.collective("conserved")
def test_conserved(each_case: Callable[[Body], None]) -> None:
    each_case(conserved)


@pytest.mark.collective("consensus")
def test_consensus(each_case: Callable[[Body], None]) -> None:
    each_case(consensus)
