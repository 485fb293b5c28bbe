"""An operator in Python, in the form of the Deep500 slides."""

from __future__ import annotations

from typing import Any


class CustomPythonOp:
    """What an author's own NumPy operator derives from: the reference of a native one.

        class IPowOp(CustomPythonOp):
            def __init__(self, power):
                super().__init__()
                self.power = power

            def forward(self, inputs):
                return inputs[0] ** self.power

            def backward(self, grads, fwd_inputs, fwd_outputs):
                return grads[0] * self.power * fwd_inputs[0] ** (self.power - 1)

    Its attributes are the arguments of `__init__`. It is called on arrays that carry error bars:
    use operators, NumPy's functions and scipy.special's, and allocate by np.zeros_like.
    """

    def forward(self, inputs: tuple[Any, ...]) -> Any:
        """The output, or a tuple of them."""
        raise NotImplementedError

    def backward(
        self, grads: tuple[Any, ...], fwd_inputs: tuple[Any, ...], fwd_outputs: tuple[Any, ...]
    ) -> Any:
        """The gradient of the input, or a tuple with one for each."""
        raise NotImplementedError

    def draw_inputs(self, d: Any) -> tuple[Any, ...] | None:
        """The inputs of a case, drawn by `d` (`d5test.strategies.Draw`).

        `None`: as the C++ file registers them, by their axes.
        """
        return None
