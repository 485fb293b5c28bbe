"""A perceptron with hidden layers: the smallest network there is."""

from __future__ import annotations

from itertools import pairwise

from d5test.networks.graph import Value
from d5test.networks.network import Network
from d5test.networks.zoo.draft import Draft
from d5test.reference.operators.elementwise import Relu
from d5test.reference.operators.views import Flatten


def mlp(sizes: tuple[int, ...] = (192, 64, 48, 10), seed: int = 0) -> Network:
    """x (n, c, h, w), flattened to sizes[0], through Gemm and Relu to sizes[-1] scores."""
    draft = Draft(
        "mlp", seed,
        x=Value("float32", ("n", "c", "h", "w")), labels=Value("int64", ("n",)),
    )  # fmt: skip
    h = draft.add("flat", Flatten(), "x")
    *hidden, last = pairwise(sizes)
    for i, (fan_in, fan_out) in enumerate(hidden, 1):
        h = draft.linear(f"fc{i}", h, fan_in, fan_out, gain=2)
        h = draft.add(f"relu{i}", Relu(), h)
    scores = draft.linear("scores", h, *last)
    return draft.finished(scores, draft.loss(scores, "labels"))
