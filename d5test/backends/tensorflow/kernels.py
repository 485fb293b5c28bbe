"""What runs below a call of TensorFlow: the operations of its graph, or XLA's instructions.

Whole numbers stay as they are, since they may decide shapes. Of oneDNN's implementations nothing
is told: its verbose mode is decided before the import, and slows every call.
"""

from collections.abc import Sequence
from typing import Any

from d5test.backends.base import Function
from d5test.backends.hlo import instructions
from d5test.backends.tensorflow.framework import tf

MOVED = frozenset(("Placeholder", "Const", "Identity", "NoOp", "IdentityN"))
"""Operations that compute nothing."""


def of_graph(function: Function, inputs: Sequence[Any], *, xla: bool) -> list[str]:
    """The types of the operations in order, or what XLA makes of them."""
    places = [i for i, x in enumerate(inputs) if x is not None and not x.dtype.is_integer]

    def traced(*given: Any) -> Any:
        every = list(inputs)
        for i, x in zip(places, given, strict=True):
            every[i] = x
        return [y for y in tf.nest.flatten(function(*every)) if y is not None]

    floats = [inputs[i] for i in places]
    graph = tf.function(traced, autograph=False, jit_compile=xla)
    if xla:
        text = graph.experimental_get_compiler_ir(*floats)(stage="optimized_hlo")
        return list(instructions(text))
    operations = graph.get_concrete_function(*floats).graph.get_operations()
    return [operation.type for operation in operations if operation.type not in MOVED]
