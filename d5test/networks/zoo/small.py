"""The smallest networks: a perceptron with hidden layers, and LeNet-5."""

import math
from itertools import pairwise

from d5test.networks.graph import Value
from d5test.networks.network import Network
from d5test.networks.zoo.built import Draft
from d5test.reference.operators.elementwise import Relu, Tanh
from d5test.reference.operators.movement import Flatten
from d5test.reference.operators.windows import AveragePool, Conv


def mlp(sizes: tuple[int, ...] = (192, 64, 48, 10), seed: int = 0) -> Network:
    """x (n, c, h, w), flattened to sizes[0], through Gemm and Relu to sizes[-1] scores."""
    x, labels = Value("float32", ("n", "c", "h", "w")), Value("int64", ("n",))
    draft = Draft("mlp", seed, x=x, labels=labels)
    h = draft.add("flat", Flatten(), "x")
    *hidden, last = pairwise(sizes)
    for i, (fan_in, fan_out) in enumerate(hidden, 1):
        h = draft.linear(f"fc{i}", h, fan_in, fan_out, gain=2)
        h = draft.add(f"relu{i}", Relu(), h)
    scores = draft.linear("scores", h, *last)
    return draft.finished(scores, draft.loss(scores, "labels"))


def lenet5(classes: int = 10, seed: int = 0) -> Network:
    """x (n, 1, 32, 32) to scores (n, classes).

    LeCun, Bottou, Bengio and Haffner, Proceedings of the IEEE 86 (1998), section II.B, as it is
    written today: every map of C3 sees every map before it, subsampling has no
    coefficients, and the last layer is linear instead of radial.
    """
    x, labels = Value("float32", ("n", 1, 32, 32)), Value("int64", ("n",))
    draft = Draft("lenet5", seed, x=x, labels=labels)
    tanh, flatten = Tanh(), Flatten()
    pool = AveragePool(kernel_shape=(2, 2), strides=(2, 2))

    def convolve(name: str, x: str, c_in: int, c_out: int) -> str:
        w = draft.normal(f"{name}_w", (c_out, c_in, 5, 5), 1 / math.sqrt(25 * c_in))
        b = draft.normal(f"{name}_b", (c_out,), 0.1)
        return draft.add(f"{name}_tanh", tanh, draft.add(name, Conv(kernel_shape=(5, 5)), x, w, b))

    h = draft.add("s2", pool, convolve("c1", "x", 1, 6))
    h = draft.add("s4", pool, convolve("c3", h, 6, 16))
    h = draft.add("flat", flatten, convolve("c5", h, 16, 120))
    h = draft.add("f6_tanh", tanh, draft.linear("f6", h, 120, 84))
    scores = draft.linear("scores", h, 84, classes)
    return draft.finished(scores, draft.loss(scores, "labels"))
