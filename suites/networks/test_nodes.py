"""Each node, on what the backend gave it, lies within its reference's error bars."""

from d5test.client.client import BackendClient
from d5test.fixtures.network import Trials
from d5test.networks.nodes import judged_nodes
from d5test.networks.zoo.built import Built


def test_nodes(trial: Trials, backend: BackendClient, network: Built) -> None:
    with trial("nodes", network) as tried:
        loss = None if backend.about.reads_models else network.loss
        tried.count(judged_nodes(tried.executor, network.inputs(), loss))
