"""A native operator through each bridge against an operator written by hand for the framework.

Both compute y = factor x^3 with the same loop (`native/cube.cpp`, `native/loops.h`), compiled with
the same flags; by hand they are what each framework's own guide says: a kernel of PyTorch's
dispatcher with a `torch::autograd::Function`, a handler of XLA's foreign function interface with a
`custom_vjp`, an OpKernel of TensorFlow's with a registered gradient. Forward alone, and forward
with the gradient of a given dy. The C library is told to keep what is freed: when it gives large
blocks back to the system and takes them anew differs from run to run, by more than a bridge costs.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from d5test.native import bridges, compiler
from d5test.native.library import Declared
from tests.budget.calls import by_hand
from tests.budget.measure import AGAIN, OURS, THEIRS, Clock, Line, in_turn, ratio

BOUND = 1.1
SIZES = (16, 2**20)
FACTOR = 3.0
SOURCES = Path(__file__).with_name("native")
Call = Callable[..., Any]


@dataclass(frozen=True)
class Framework:
    """How a framework has the cube: natively, and by hand.

    `put` makes a tensor, `gradient` of a call one of x and dy that computes forward and dx. What
    is planned is called with x alone. `modes` are ways to call either, by name.
    """

    native: Call
    hand: Call
    put: Call
    gradient: Callable[[Call], Call]
    wait: Call
    modes: Mapping[str, Callable[[Call], Call]]


def lines() -> Iterator[Line]:
    """Forward, and forward with the gradient, of each size in each framework."""
    cube = declared()
    keep_memory()
    for name, framework in (("torch", _torch), ("jax", _jax), ("tensorflow", _tensorflow)):
        yield from compared(name, framework(cube))


def keep_memory() -> None:
    """No large block is given back to the system: glibc's trim and mmap thresholds."""
    if sys.platform == "linux":
        for parameter, most in ((-1, 2**30), (-3, 2**25)):
            assert ctypes.CDLL(None).mallopt(parameter, most) == 1


def declared() -> Declared:
    """The native cube, compiled; the bridges are told of it."""
    library = compiler.library(SOURCES / "cube.cpp")
    os.environ.update(bridges.environment([library]))
    (cube,) = bridges.available()
    return cube


def compared(name: str, framework: Framework) -> Iterator[Line]:
    """The lines of one framework."""
    random = np.random.default_rng(0)
    for mode, called in framework.modes.items():
        native, hand = called(framework.native), called(framework.hand)
        slopes = (
            called(framework.gradient(framework.native)),
            called(framework.gradient(framework.hand)),
        )
        for size in SIZES:
            x, dy = (framework.put(random.standard_normal(size).astype("f")) for _ in range(2))
            what = f"native cube of {size} elements, {name}{mode}"
            yield line(f"{what}: bridge / by hand", native, hand, (x,), framework.wait)
            what += ", with its gradient"
            yield line(f"{what}: bridge / by hand", *slopes, (x, dy), framework.wait)


def line(what: str, ours: Call, theirs: Call, tensors: tuple[Any, ...], wait: Call) -> Line:
    """The ratio of two calls, whose results are the same."""
    for one, other in zip(*(arrays(call(*tensors)) for call in (ours, theirs)), strict=True):
        np.testing.assert_array_max_ulp(one, other, maxulp=4)

    def clock(call: Call, least: float = 0.002) -> Clock:
        once = by_hand(call, tensors, 10, wait)
        return by_hand(call, tensors, max(1, round(least / min(once() for _ in range(3)))), wait)

    hand = clock(theirs)
    arms = {OURS: clock(ours), THEIRS: hand, AGAIN: hand}
    return ratio(what, in_turn(arms, rounds=201, seconds=3.5), BOUND)


def arrays(result: Any) -> list[Any]:
    """What a call returned, in NumPy."""
    found = result if isinstance(result, tuple) else (result,)
    return [np.asarray(x.detach() if hasattr(x, "detach") else x) for x in found]


def _torch(cube: Declared) -> Framework:
    import torch

    from d5test.native.bridges import torch as bridge

    torch.set_num_threads(1)
    flags, libraries = bridge.toolchain()
    source = SOURCES / "torch_cube.cpp"
    torch.ops.load_library(compiler.bridge(source, torch.__version__, flags, libraries))

    def gradient(call: Call) -> Call:
        def both(x: Any, dy: Any) -> Any:
            y = call(x)
            return y, *torch.autograd.grad(y, x, dy)

        return lambda x, dy: both(x.requires_grad_(), dy)

    native = partial(torch.ops.d5test.Cube.default, factor=FACTOR)
    hand = partial(torch.ops.budget.cube.default, factor=FACTOR)
    return Framework(native, hand, torch.tensor, gradient, lambda _: None, {"": lambda f: f})


def _jax(cube: Declared) -> Framework:
    import jax

    from d5test.native.bridges import jax as bridge

    flags = bridge.toolchain()
    source = SOURCES / "jax_cube.cpp"
    library = ctypes.CDLL(str(compiler.bridge(source, f"jaxlib {jax.lib.__version__}", flags)))
    for name in ("budget_cube", "budget_cube_backward"):
        handler = jax.ffi.pycapsule(getattr(library, name))
        jax.ffi.register_ffi_target(name, handler, platform="cpu")

    @jax.custom_vjp
    def hand(x: Any) -> Any:
        call = jax.ffi.ffi_call("budget_cube", jax.ShapeDtypeStruct(x.shape, x.dtype))
        return call(x, factor=np.float32(FACTOR))

    def backward(x: Any, dy: Any) -> Any:
        call = jax.ffi.ffi_call("budget_cube_backward", jax.ShapeDtypeStruct(x.shape, x.dtype))
        return (call(dy, x, factor=np.float32(FACTOR)),)

    hand.defvjp(lambda x: (hand(x), x), backward)
    bridge.registered()
    native = bridge.Called(cube, {"factor": FACTOR}, np.dtype(np.float32), guarded=False)

    def gradient(call: Call) -> Call:
        def both(x: Any, dy: Any) -> Any:
            y, pull = jax.vjp(call, x)
            return y, *pull(dy)

        return both

    modes = {"": lambda f: f, " jit": jax.jit}
    return Framework(native, hand, jax.numpy.asarray, gradient, jax.block_until_ready, modes)


def _tensorflow(cube: Declared) -> Framework:
    import tensorflow as tf

    from d5test.native.bridges import tensorflow as bridge

    flags, libraries = bridge.toolchain()
    source = SOURCES / "tensorflow_cube.cpp"
    path = compiler.bridge(source, f"tensorflow {tf.__version__}", flags, libraries)
    module = tf.load_op_library(str(path))

    @tf.RegisterGradient("BudgetCube")
    def slope(op: Any, dy: Any) -> Any:
        return module.budget_cube_backward(dy=dy, x=op.inputs[0], factor=op.get_attr("factor"))

    def gradient(call: Call) -> Call:
        def both(x: Any, dy: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = call(x)
            return y, tape.gradient(y, x, dy)

        return both

    native = bridge.bound(cube, {"factor": FACTOR}, 32, guarded=False)

    def hand(x: Any) -> Any:
        return module.budget_cube(x, factor=FACTOR)

    modes = {"": lambda f: f, " function": tf.function}
    return Framework(native, hand, tf.constant, gradient, lambda _: None, modes)
