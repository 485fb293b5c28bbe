"""Native operators in TensorFlow: kernels, their gradient registered, in `tf.function` too.

The C++ half (`source/tensorflow.cpp`) is compiled once for each TensorFlow, against the headers of
its wheel. TensorFlow's tensors are row-major. XLA has no such kernels. An input that is absent is
`None`; integers and booleans have no gradient.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from d5test.backends.base import Plan, Table, Unsupported
from d5test.backends.tensorflow import TensorFlow, TensorFlowCompiled
from d5test.backends.tensorflow.framework import tf
from d5test.native import compiler
from d5test.native.bridges import (
    BOUND,
    address,
    asked,
    bits_of,
    differentiable,
    first_floating,
    rows,
    shapes,
    sources,
    taken,
)
from d5test.native.library import Declared, Port

SOURCE = Path(__file__).with_name("source") / "tensorflow.cpp"


def toolchain() -> tuple[list[str], list[str]]:
    """The compiler's flags and libraries for a library of this TensorFlow's.

    Eigen's vector code, which nothing here computes with, is left out: that of TensorFlow 2.21 for
    AVX512-FP16 is refused by GCC 12.
    """
    flags, libraries = tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()
    ours = [flag.replace("-I", "-isystem", 1) for flag in flags]
    return [*ours, "-DEIGEN_DONT_VECTORIZE"], libraries


@cache
def kernels() -> Any:
    """The compiled half of the bridge, its operators in a module, and their gradient."""
    flags, libraries = toolchain()
    path = compiler.bridge(SOURCE, f"tensorflow {tf.__version__}", flags, libraries)
    module = tf.load_op_library(str(path))
    backward = module.d5test_backward

    def gradient(op: Any, *grads: Any) -> Any:
        """By the operator's own backward; a gradient that is missing is zero."""
        inputs, outputs, where = op.inputs, op.outputs, op.get_attr("bound")
        declared = BOUND[where].declared
        if not declared.differentiable:
            return [None] * len(inputs)
        upstream = [
            tf.zeros_like(y) if dy is None else dy for dy, y in zip(grads, outputs, strict=True)
        ]
        return backward(upstream, list(inputs), declared.read_backward(outputs), where)

    def mixed_gradient(op: Any, *grads: Any) -> Any:
        """The same of what is there, each of its type."""
        inputs, outputs, where = op.inputs, op.outputs, op.get_attr("bound")
        bound = BOUND[where]
        if not (bound.declared.differentiable and any(bound.has_slope)):
            return [None] * len(inputs)
        ports = zip(bound.declared.outputs, grads, outputs, strict=False)
        upstream = [
            tf.zeros_like(y) if dy is None else dy for port, dy, y in ports if not port.whole
        ]
        types = [x.dtype for x, has in zip(inputs, bound.has_slope, strict=True) if has]
        tensors = [*upstream, *inputs, *bound.declared.read_backward(outputs)]
        slopes = iter(module.d5test_backward_mixed(tensors, types, where))
        return [next(slopes) if has else None for has in bound.has_slope]

    for name in ("D5testForward", "D5testForwardOne"):
        tf.RegisterGradient(name)(gradient)
    tf.RegisterGradient("D5testForwardMixed")(mixed_gradient)
    for name in ("D5testBackward", "D5testBackwardMixed"):
        tf.no_gradient(name)
    return module


def plan(one: Declared, guarded: bool, op: Any, *inputs: Any) -> Plan:
    """The kernel with its operator bound."""
    attributes = asked(one, op, inputs)
    dtype = first_floating(one, inputs, lambda x: x.dtype.is_floating).dtype
    bits = bits_of(one, np.dtype(dtype.as_numpy_dtype))
    if not one.plain:
        return mixed(one, attributes, dtype, guarded, inputs)
    if any(x.dtype != dtype for x in inputs):
        raise Unsupported(f"{one.name} has inputs of one dtype")
    return bound(one, attributes, bits, guarded)


def bound(one: Declared, attributes: Mapping[str, Any], bits: int, guarded: bool) -> Plan:
    """The kernel of a plain operator: a function of tensors of `bits` bits an element."""
    forward, forward_one = kernels().d5test_forward, kernels().d5test_forward_one
    m, slopes = len(one.outputs), (True,) * len(one.inputs)
    where = address(one, tuple(sorted(attributes.items())), bits, guarded, slopes, m)

    def single(*inputs: Any) -> Any:
        return forward_one(inputs, where)

    def several(*inputs: Any) -> Any:
        return tuple(forward(inputs, m, where))

    return single if m == 1 else several


def mixed(
    one: Declared, attributes: Mapping[str, Any], dtype: Any, guarded: bool, inputs: Sequence[Any]
) -> Plan:
    """The kernel of one that computes in a dtype, of inputs like these, some of them absent."""
    forward, bits = kernels().d5test_forward_mixed, 8 * dtype.size
    for port, x in zip(one.inputs, inputs, strict=False):
        if x is not None:
            taken(port, x.dtype.name, dtype.name)
    slopes = differentiable(one, inputs, lambda x: bool(x.dtype.is_floating))
    types = [tf.int64 if port.whole else dtype for port in present(one, attributes, bits, inputs)]
    key = tuple(sorted(attributes.items()))
    where = address(one, key, bits, guarded, slopes, len(types))
    whole = [port.whole for port in one.inputs]

    def call(*inputs: Any) -> Any:
        tensors = [
            tf.cast(x, tf.int64) if is_whole and x.dtype != tf.int64 else x
            for x, is_whole in zip(inputs, whole, strict=False)
            if x is not None
        ]
        outputs = forward(tensors, types, where)
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    return call


def present(
    one: Declared, attributes: Mapping[str, Any], bits: int, inputs: Sequence[Any]
) -> Sequence[Port]:
    """The outputs that are there. Raises `Unsupported` where a graph cannot know it."""
    if not any(port.optional for port in one.outputs):
        return one.outputs
    if not all(x is None or x.shape.is_fully_defined() for x in inputs):
        raise Unsupported(
            f"{one.name} has optional outputs: to make a graph, TensorFlow has to know "
            "the shapes of its inputs"
        )
    return one.outputs[: len(shapes(one, inputs, attributes, bits))]


kernels()


class NativeTensorFlow(TensorFlow):
    """TensorFlow with native operators."""

    rows = Table({**TensorFlow.rows, **rows(plan)})
    sources: ClassVar[Mapping[str, str]] = sources()


class NativeTensorFlowCompiled(NativeTensorFlow, TensorFlowCompiled):
    """`tf.function` with native operators."""
