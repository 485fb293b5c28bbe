"""Operators in one C++ file, for every framework.

    op = d5test.native.compile("ipow.cpp")      # and pytest ... --native=ipow.cpp

`include/d5test/operator.h` is what an author includes; `compiler` makes a library of the file,
`library` calls it on NumPy arrays, `operators` makes it one of d5test's operators, and `bridges`
have it in the rows of the backends; `interface` is the header for ctypes. `backend` and `onednn`
are backends of our own kernels and of oneDNN's primitives. Importing this imports nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from d5test.native.compiler import CompileError
    from d5test.native.operators import compile  # noqa: A004 (what it does)

_HOMES = {
    "CompileError": "d5test.native.compiler",
    "compile": "d5test.native.operators",
}

__all__ = ["CompileError", "CustomPythonOp", "compile"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'd5test.native' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


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
