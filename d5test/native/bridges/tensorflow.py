"""Native operators in TensorFlow: kernels, their gradient registered, in `tf.function` too.

The C++ half (`source/tensorflow.cpp`) is compiled once for each TensorFlow, against the headers of
its wheel. TensorFlow's tensors are row-major. XLA has no such kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from d5test.backends.base import Plan, Row, Table, Unsupported
from d5test.backends.tensorflow import TensorFlow, TensorFlowCompiled
from d5test.backends.tensorflow.framework import tf
from d5test.native import compiler, interface
from d5test.native.bridges import available, given, kept, row, sources
from d5test.native.library import Declared

SOURCE = Path(__file__).with_name("source") / "tensorflow.cpp"


def toolchain() -> tuple[list[str], list[str]]:
    """What the compiler is told for a library of this TensorFlow's: flags, and libraries."""
    flags, libraries = tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()
    return [flag.replace("-I", "-isystem", 1) for flag in flags], libraries


@cache
def kernels() -> Any:
    """The compiled half of the bridge, its operators in a module, and their gradient."""
    flags, libraries = toolchain()
    path = compiler.bridge(SOURCE, f"tensorflow {tf.__version__}", flags, libraries)
    module = tf.load_op_library(str(path))
    backward = module.d5test_backward

    def gradient(op: Any, *grads: Any) -> Any:
        """By the operator's own backward; a gradient that is missing is zero."""
        inputs, outputs, bound = op.inputs, op.outputs, op.get_attr("bound")
        if not _BOUND[bound].differentiable:
            return [None] * len(inputs)
        upstream = [
            tf.zeros_like(y) if dy is None else dy for dy, y in zip(grads, outputs, strict=True)
        ]
        return backward(upstream, list(inputs), list(outputs), bound)

    for name in ("D5testForward", "D5testForwardOne"):
        tf.RegisterGradient(name)(gradient)
    tf.no_gradient("D5testBackward")
    return module


class Bound(ctypes.Structure):
    """What a node's attribute is the address of: an operator's table, and the operator made."""

    _fields_ = (("table", ctypes.c_void_p), ("made", ctypes.c_void_p))
    differentiable: bool


_BOUND: dict[int, Bound] = {}
"""By address, for ever: graphs hold the addresses."""


@cache
def address(one: Declared, attributes: Any, bits: int, guarded: bool) -> int:
    """The attribute of a node that computes an operator."""
    made = kept(one, attributes, bits, guarded)
    bound = Bound(ctypes.addressof(one.table), made.pointer)
    bound.differentiable = one.differentiable
    _BOUND[ctypes.addressof(bound)] = bound
    return ctypes.addressof(bound)


def plan(one: Declared, guarded: bool, op: Any, *inputs: Any) -> Plan:
    """The kernel with its operator bound."""
    attributes = given(one, op, inputs)
    dtype = inputs[0].dtype
    bits = interface.dtype_bits(np.dtype(dtype.as_numpy_dtype))
    if bits is None or any(x.dtype != dtype for x in inputs):
        raise Unsupported(f"{one.name} has inputs of float32 or float64, all of one")
    return bound(one, attributes, bits, guarded)


def bound(one: Declared, attributes: Mapping[str, Any], bits: int, guarded: bool) -> Plan:
    """The kernel with its operator bound: a function of tensors of `bits` bits an element."""
    forward, forward_one = kernels().d5test_forward, kernels().d5test_forward_one
    where, m = address(one, tuple(sorted(attributes.items())), bits, guarded), len(one.outputs)

    def single(*inputs: Any) -> Any:
        return forward_one(inputs, where)

    def several(*inputs: Any) -> Any:
        return tuple(forward(inputs, m, where))

    return single if m == 1 else several


def rows() -> dict[str, Row]:
    """The rows of all native operators."""
    kernels()
    return {
        one.name: row(one, partial(plan, one, False), partial(plan, one, True))
        for one in available()
        if not one.on_cuda
    }


class NativeTensorFlow(TensorFlow):
    """TensorFlow with native operators."""

    rows = Table({**TensorFlow.rows, **rows()})
    sources: ClassVar[Mapping[str, str]] = sources()


class NativeTensorFlowCompiled(TensorFlowCompiled):
    """`tf.function` with native operators."""

    rows = NativeTensorFlow.rows
    sources: ClassVar[Mapping[str, str]] = NativeTensorFlow.sources
