"""Wrong distributed optimizers are found, by the check that is meant to, and named."""

import re
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Any

import pytest

from d5test.distributed.averaging import FederatedAveraging, ModelAveraging
from d5test.distributed.checks import table
from d5test.distributed.communicator import Virtual
from d5test.distributed.optimizers import DISTRIBUTED, Compressed, GrowingMinibatch
from d5test.distributed.probes import DESCENT
from d5test.distributed.servers import ElasticAveraging, Sharded
from d5test.outcome.fault import Fault
from d5test.reference.compressors import QSGD, TopK
from tests.distributed import wrong_optimizers as wrong
from tests.distributed.wrong_compressors import OwnExactly

CASES = 25


def regular(neighbours: Any) -> Any:
    """Such an averaging among the neighbours that its name says."""
    return partial(neighbours, graph="random_regular")


def first_fault(name: str, optimizer: Any, check: str, dtype: str = "float32") -> Fault | None:
    row, comm = DESCENT[check], Virtual(optimizers={**DISTRIBUTED, name: optimizer})
    sizes = [size for size in comm.sizes if size >= row.least]
    return first_of(row, comm, islice(table(row, name, sizes, dtype, 0), CASES))


def first_of(row: Any, comm: Any, cases: Iterable[Any]) -> Fault | None:
    """The first fault of cases; None if there is none."""
    for case in cases:
        try:
            row.run(comm, case)
        except Fault as fault:
            return fault
    return None


@pytest.mark.parametrize(
    ("name", "optimizer", "check", "kind"),
    [
        ("decentralised", wrong.OneRankTooFew, "one_step", "step"),
        ("decentralised", wrong.OneRankTooFew, "sequential", "value"),
        ("decentralised", wrong.StepsAveraged, "sequential", "value"),
        ("decentralised", DISTRIBUTED["asynchronous"], "replicas", "disagreement"),
        ("growing_minibatch", DISTRIBUTED["decentralised"], "sequential", "value"),
        ("growing_minibatch", partial(GrowingMinibatch, after=2), "sequential", "value"),
        ("growing_minibatch", partial(GrowingMinibatch, most=8), "sequential", "value"),
        ("growing_minibatch", wrong.MinibatchesSummed, "sequential", "value"),
        ("growing_minibatch", wrong.LastIsFull, "sequential", "value"),
        ("growing_minibatch", wrong.SummedEachTime, "traffic", "volume"),
        ("growing_minibatch", wrong.OneRankTooFew, "one_step", "step"),
        ("centralised", wrong.Forgetful, "sequential", "value"),
        ("centralised", DISTRIBUTED["neighbour_averaging"], "traffic", "volume"),
        ("neighbour_averaging", wrong.GradientsAmongNeighbours, "one_step", "step"),
        ("neighbour_averaging", wrong.RanksSwapped, "one_step", "step"),
        ("neighbour_averaging", wrong.LooksAhead, "sequential", "value"),
        ("model_averaging", wrong.AveragesOnce, "sequential", "value"),
        ("model_averaging", wrong.StartsAnew, "sequential", "value"),
        ("stale_synchronous-0", partial(wrong.Hasty, bound=0), "staleness", "stale"),
        ("stale_synchronous-2", partial(wrong.Hasty, bound=2), "staleness", "stale"),
        ("stale_synchronous-2", DISTRIBUTED["asynchronous"], "staleness", "stale"),
        ("asynchronous", wrong.Lossy, "staleness", "lost"),
        ("one_sided-2", DISTRIBUTED["one_sided"], "staleness", "stale"),
        ("one_sided-2", partial(wrong.TornClock, bound=2), "staleness", "stale"),
        ("asynchronous", wrong.Selfish, "staleness", "deadlock"),
        ("compressed-topk", wrong.Unremembered, "paid_back", "lost"),
        ("compressed-topk", partial(Compressed, compressor=QSGD(4)), "paid_back", "lost"),
        ("compressed-topk", wrong.StepsCompressed, "paid_back", "lost"),
        ("compressed-topk", wrong.StepsCompressed, "replicas", "disagreement"),
        (
            "compressed-qsgd-4",
            partial(Compressed, compressor=OwnExactly()),
            "replicas",
            "disagreement",
        ),
        ("compressed-powersgd", DISTRIBUTED["decentralised"], "traffic", "volume"),
        ("centralised-sharded", wrong.ShardForgotten, "one_step", "step"),
        ("centralised-sharded", wrong.ShardForgotten, "sequential", "value"),
        ("centralised-sharded", wrong.ShardForgotten, "shards", "bits"),
        ("centralised-sharded", wrong.ShardsSlotsShared, "sequential", "value"),
        ("centralised-sharded", wrong.AddedInReverse, "shards", "bits"),
        ("centralised-sharded", DISTRIBUTED["centralised"], "traffic", "volume"),
        ("centralised-hierarchical", wrong.NodeLeftOut, "one_step", "step"),
        ("centralised-hierarchical", wrong.NodeLeftOut, "sequential", "value"),
        ("centralised-hierarchical", DISTRIBUTED["centralised"], "traffic", "volume"),
        ("neighbour_averaging-torus", DISTRIBUTED["neighbour_averaging"], "one_step", "step"),
        ("neighbour_averaging-torus", DISTRIBUTED["neighbour_averaging"], "sequential", "value"),
        ("neighbour_averaging-torus", DISTRIBUTED["neighbour_averaging"], "traffic", "volume"),
        ("neighbour_averaging-torus", regular(wrong.OneNeighbourTooFew), "at_rest", "weights"),
        ("neighbour_averaging-random_regular", regular(wrong.OneSidedWeights), "conserved", "sum"),
        ("neighbour_averaging-random_regular", regular(wrong.OneSidedWeights), "one_step", "step"),
        ("neighbour_averaging-random_regular", regular(wrong.Lazy), "consensus", "consensus"),
        ("neighbour_averaging", wrong.Lazy, "sequential", "value"),
        ("local_sgd-4", partial(wrong.MeanOverTooFew, every=4), "at_rest", "weights"),
        ("local_sgd-4", partial(wrong.MeanOverTooFew, every=4), "sequential", "value"),
        ("local_sgd-4", DISTRIBUTED["model_averaging"], "sequential", "value"),
        ("post_local_sgd", DISTRIBUTED["local_sgd-4"], "sequential", "value"),
        ("post_local_sgd", DISTRIBUTED["local_sgd-4"], "traffic", "volume"),
        ("federated_averaging", wrong.Unweighted, "sequential", "value"),
        ("federated_averaging", wrong.OneClientTooMany, "at_rest", "weights"),
        ("federated_averaging", wrong.OneClientTooMany, "sequential", "value"),
        ("federated_averaging", wrong.AlwaysTheSame, "sequential", "value"),
        ("federated_averaging", wrong.AlwaysTheSame, "traffic", "volume"),
        ("federated_averaging", wrong.FromOwnParameters, "sequential", "value"),
        ("federated_averaging", partial(FederatedAveraging, share=1.0), "traffic", "volume"),
        ("stale_synchronous-2", DISTRIBUTED["asynchronous"], "replay", "stale"),
        ("asynchronous", wrong.Lossy, "replay", "value"),
        ("asynchronous", wrong.StalenessAware, "replay", "value"),
        ("staleness_aware", DISTRIBUTED["asynchronous"], "replay", "value"),
        ("staleness_aware", wrong.OneLessStale, "replay", "value"),
        ("elastic_averaging-0", partial(wrong.CentreStays, bound=0), "replay", "value"),
        ("elastic_averaging", wrong.CentreStays, "conserved", "sum"),
        ("elastic_averaging", wrong.WorkerStays, "conserved", "sum"),
        ("elastic_averaging-2", partial(wrong.WorkerStays, bound=2), "replay", "value"),
        ("elastic_averaging", wrong.PulledFirst, "replay", "value"),
        ("elastic_averaging-0", partial(wrong.HastyElastic, bound=0), "replay", "stale"),
        ("elastic_averaging", partial(ElasticAveraging, every=1), "replay", "lost"),
        ("elastic_averaging", partial(ElasticAveraging, every=3), "traffic", "volume"),
    ],
)
def test_it_is_found(name: str, optimizer: Any, check: str, kind: str) -> None:
    fault = first_fault(name, optimizer, check)
    assert fault is not None
    assert fault.kind == kind
    assert f"optimizer='{name}'" in fault.headline


@pytest.mark.parametrize("check", DESCENT)
def test_nothing_is_found_in_what_is_right(check: str) -> None:
    for name in DESCENT[check].subjects:
        assert first_fault(name, DISTRIBUTED[name], check) is None


@pytest.mark.parametrize("servers", [1, 3, 9])
@pytest.mark.parametrize("check", ["shards", "sequential", "replicas", "traffic"])
def test_any_number_of_servers_is_right(check: str, servers: int) -> None:
    """The bits are those of one server; what a rank sends depends on the number, and is told."""
    found = first_fault("centralised-sharded", partial(Sharded, servers=servers), check)
    assert (found is None) == (check != "traffic")


def test_local_sgd_that_meets_after_each_step_is_synchronous() -> None:
    """With plain gradient descent, the mean of steps is the step with the mean gradient."""
    each = partial(ModelAveraging, every=1)
    assert first_fault("decentralised", each, "one_step") is None


@pytest.mark.parametrize("check", ["one_step", "sequential", "replicas"])
def test_a_compressor_that_leaves_nothing_out_makes_the_same_steps(check: str) -> None:
    lossless = partial(Compressed, compressor=TopK(share=1.0))
    assert first_fault("decentralised", lossless, check) is None


@pytest.mark.parametrize(
    ("name", "optimizer", "named"),
    [
        ("decentralised", wrong.OneRankTooFew, "an average over one rank too few"),
        (
            "neighbour_averaging",
            wrong.GradientsAmongNeighbours,
            "an average of neighbours' gradients, not of parameters",
        ),
        ("neighbour_averaging", wrong.RanksSwapped, "ranks swapped: gradients in reverse"),
        ("decentralised", partial(wrong.Silent, who=3), "the last rank's gradient left out"),
        ("decentralised", partial(wrong.Silent, who=0), "the gradient of rank 0 left out"),
    ],
)
def test_the_mistake_is_named(name: str, optimizer: Any, named: str) -> None:
    row, comm = DESCENT["one_step"], Virtual(optimizers={**DISTRIBUTED, name: optimizer})
    (case,) = islice(table(row, name, [4], "float64", 1), 1)
    with pytest.raises(Fault) as found:
        row.run(comm, case)
    assert found.value.details["looks like"] == named


@pytest.mark.parametrize(
    ("name", "optimizer", "check"),
    [
        ("decentralised", wrong.OneRankTooFew, "one_step"),
        ("asynchronous", wrong.Lossy, "staleness"),
    ],
)
def test_a_probe_accuses_no_base_optimizer_but_its_own(
    name: str, optimizer: Any, check: str
) -> None:
    row, comm = DESCENT[check], Virtual(optimizers={**DISTRIBUTED, name: optimizer})
    cases = list(islice(table(row, name, [4], "float64", 1), CASES))
    assert any("base='Adam'" in repr(case) for case in cases)
    found = []
    for case in cases:
        try:
            row.run(comm, case)
        except Fault as fault:
            found.append(fault.headline)
    assert len(found) > CASES / 2
    assert all("base='GradientDescent'" in headline for headline in found)


@pytest.mark.parametrize("check", ["one_step", "sequential"])
def test_what_a_rank_raises_is_a_fault_with_its_line(check: str) -> None:
    fault = first_fault("decentralised", wrong.Raising, check)
    assert fault is not None
    assert fault.kind == "exception"
    told = r"ZeroDivisionError: .*zero, at wrong_optimizers.py:\d+ in train"
    assert re.fullmatch(told, fault.details["message"])


def test_what_d5test_itself_raises_is_no_fault_of_a_rank() -> None:
    names: dict[str, Any] = {"__name__": "d5test.made", "Virtual": Virtual}
    code = "class Broken(Virtual):\n    def run(self, *given, **named): raise KeyError('ours')"
    exec(code, names)
    row = DESCENT["one_step"]
    (case,) = islice(table(row, "decentralised", [4], "float64", 1), 1)
    with pytest.raises(KeyError, match="ours"):
        row.run(names["Broken"](), case)


def test_a_stale_read_is_told_with_the_clocks_it_saw() -> None:
    fault = first_fault("stale_synchronous-2", partial(wrong.Hasty, bound=2), "staleness")
    assert fault is not None
    assert fault.details["lag"] == "3, at most 2"
    made = re.fullmatch(r"rank \d, after (\d+) gradients of its own", fault.details["who"])
    assert made is not None
    assert int(made[1]) >= 3


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        ("decentralised", wrong.StepsAveraged),
        ("neighbour_averaging", wrong.LooksAhead),
        ("model_averaging", wrong.AveragesOnce),
        ("model_averaging", wrong.StartsAnew),
    ],
)
def test_one_plain_step_does_not_find_what_sequential_does(name: str, optimizer: Any) -> None:
    assert first_fault(name, optimizer, "one_step", "float64") is None


@pytest.mark.parametrize("bound", [0, 2])
def test_the_bound_is_reached(bound: int) -> None:
    """Or the probe would never get near what it has to find."""
    row, comm = DESCENT["staleness"], Virtual()
    cases = islice(table(row, f"stale_synchronous-{bound}", range(3, 8), "float32", 0), CASES)
    assert max(row.run(comm, case).got for case in cases) == bound


def test_asynchronous_reads_lag_further() -> None:
    row, comm = DESCENT["staleness"], Virtual()
    cases = islice(table(row, "asynchronous", range(3, 8), "float32", 0), CASES)
    assert max(row.run(comm, case).got for case in cases) > 2
