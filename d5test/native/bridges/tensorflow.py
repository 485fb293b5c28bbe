"""Native operators in TensorFlow: two kernels, their gradient registered, in `tf.function` too.

The C++ half (`source/tensorflow.cpp`) is compiled once for each TensorFlow, against the headers of
its wheel. TensorFlow's tensors are row-major. XLA has no such kernels.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
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


@cache
def kernels() -> Any:
    """The compiled half of the bridge, its two operators in a module, and their gradient."""
    flags, libraries = tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()
    flags = [flag.replace("-I", "-isystem", 1) for flag in flags]
    path = compiler.bridge(SOURCE, f"tensorflow {tf.__version__}", flags, libraries)
    module = tf.load_op_library(str(path))

    @tf.RegisterGradient("D5testForward")  # type: ignore[untyped-decorator]
    def gradient(op: Any, *grads: Any) -> Any:
        """By the operator's own backward; a gradient that is missing is zero."""
        if not _table(op.get_attr("table")).flags & interface.BACKWARD:
            return [None] * len(op.inputs)
        pairs = zip(grads, op.outputs, strict=True)
        upstream = [tf.zeros_like(y) if dy is None else dy for dy, y in pairs]
        return module.d5test_backward(
            grads=upstream, inputs=list(op.inputs), outputs=list(op.outputs),
            table=op.get_attr("table"), made=op.get_attr("made"),
        )  # fmt: skip

    tf.no_gradient("D5testBackward")
    return module


def _table(address: int) -> Any:
    return interface.Table.from_address(address)


def plan(one: Declared, guarded: bool, op: Any, *inputs: Any) -> Plan:
    """The kernel with its operator bound."""
    attributes = given(one, op, inputs)
    dtype = inputs[0].dtype
    bits = interface.dtype_bits(np.dtype(dtype.as_numpy_dtype))
    if bits is None or any(x.dtype != dtype for x in inputs):
        raise Unsupported(f"{one.name} has inputs of float32 or float64, all of one")
    made = kept(one, tuple(sorted(attributes.items())), bits, guarded)
    call = partial(
        kernels().d5test_forward, M=len(one.outputs), table=ctypes.addressof(one.table),
        made=made.pointer.value,
    )  # fmt: skip

    def called(*inputs: Any) -> Any:
        outputs = call(inputs)
        return tuple(outputs) if len(outputs) > 1 else outputs[0]

    planned: Callable[..., Any] = called
    return planned


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
