"""What the references expect of networks, worked out once for all backends."""

from __future__ import annotations

from d5test.case import is_float
from d5test.networks.network import Network
from d5test.networks.specialise import specialised
from d5test.networks.whole import Expectation, expected
from d5test.networks.zoo import Built
from d5test.numerics.arithmetic import Arithmetic, classes

Expectations = dict[tuple[str, str | None], Expectation]
"""By network and loss."""


def expectation(
    known: Expectations, network: Built, made: Network, loss: str | None
) -> Expectation:
    """What the reference expects of a network."""
    key = network.name, loss
    if key not in known:
        shapes = {name: x.shape for name, x in network.inputs().items()}
        graph = specialised(made.graph, shapes)
        known[key] = expected(graph, network.inputs, loss, arithmetic(made))
    return known[key]


def arithmetic(network: Network) -> Arithmetic:
    """The arithmetic of a network's first floating-point dtype, flushing to zero or not."""
    given = (value.dtype for value in network.inputs.values() if is_float(value.dtype))
    return classes(next(given, "float32"), flushes=True)[0]
