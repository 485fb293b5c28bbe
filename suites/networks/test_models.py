"""Models that others made have the outputs that came with them."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from d5test.fixtures.network import Trials
from d5test.networks.external import ExternalModel
from d5test.networks.whole import arithmetic, expected, require_affordable


def as_given(inputs: Mapping[str, Any], seed: int) -> Mapping[str, Any]:
    """The inputs that came with a model, whatever the seed."""
    return inputs


def test_models(trial: Trials, model: ExternalModel, named_networks: tuple[str, ...]) -> None:
    """The outputs that came with a model are judged by the same bars, before the backend's."""
    with trial("models", model) as tried:
        executor = tried.executor
        for inputs, outputs in model.samples(executor.network):
            if model.name not in named_networks:
                require_affordable(executor.network, inputs, model.name)
            graph, kind = executor.graph(inputs), arithmetic(executor.network)
            wanted = expected(graph, partial(as_given, inputs), None, kind)
            tried.compare(wanted, outputs, "the outputs that came with the model")
            tried.judge(wanted, executor.inference(inputs), inputs, None)
