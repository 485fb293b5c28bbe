"""TensorFlow as it runs one function after another."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import Backend, Template, bits
from d5test.backends.tensorflow.framework import tf
from d5test.backends.tensorflow.optimizers import KerasUpdater, TensorFlowReference
from d5test.backends.tensorflow.table import rows


def pulled(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    grads: Sequence[Any],
    wanted: Sequence[int],
) -> tuple[tuple[Any, ...], list[Any]]:
    sources = [inputs[i] for i in wanted]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        result = function(*inputs)
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    pairs = zip(outputs, grads, strict=False)
    flowing = [(y, tf.cast(dy, y.dtype)) for y, dy in pairs if dy is not None]
    if not flowing:
        return outputs, [None] * len(sources)
    ys, dys = zip(*flowing, strict=True)
    found = tape.gradient(ys, sources, output_gradients=list(dys))
    return outputs, [None if dx is None else tf.convert_to_tensor(dx) for dx in found]


def has_onednn() -> bool:
    """Whether oneDNN's kernels are used, which TensorFlow decides by the CPU. It tells nobody but
    its own tests.
    """
    try:
        from tensorflow.python.util import _pywrap_util_port as port

        return bool(port.IsMklEnabled())
    except (ImportError, AttributeError):
        return False


LACKING = (
    "Could not find device for node",
    "list of allowed values",
    "not supported on CPU",
    "not yet support",
    "Detected unsupported operations",
)
"""What TensorFlow says when it has no kernel for a dtype, a device or an attribute."""


TEMPLATE = Template(
    imports="import tensorflow",
    tensor='tensorflow.constant({values}, "{dtype}")',
    array='tensorflow.cast({y}, "float64").numpy()',
    dtype="{y}.dtype.name",
    gradient="with tensorflow.GradientTape() as tape:\n    tape.watch([{inputs}])\n"
    "    y = {call}\nresults = tape.gradient(y, [{inputs}], dy)",
)


class TensorFlow(Backend):
    """TensorFlow as it runs one function after another. One device a process; TF32 is off."""

    framework = "tensorflow"
    rows = rows
    ulps: ClassVar[Mapping[str, float]] = {"tanh": 8, "erf": 8, "divide": 3}
    """Measured on 3e6 points from -9 to 9 against longdouble: tanh 5.4 (float64: 7.8), erf 7.4;
    tf.math.reciprocal on 1e6 between 2^-30 and 2^30: 2.7, where its vector code is used."""
    template = TEMPLATE
    updaters: ClassVar[Mapping[str, Any]] = {
        "native": KerasUpdater,
        "reference": TensorFlowReference,
    }

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        gpus = tf.config.list_physical_devices("GPU")
        used = [] if device == "cpu" else [gpus[int(device.partition(":")[2] or 0)]]
        tf.config.set_visible_devices(used, "GPU")
        tf.config.experimental.enable_tensor_float_32_execution(False)
        tf.get_logger().setLevel("ERROR")
        self._gpus = used

    def allow_tf32(self) -> None:
        tf.config.experimental.enable_tensor_float_32_execution(True)

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        gpus = tf.config.list_physical_devices("GPU")
        return ("cpu", *(f"gpu:{i}" for i in range(len(gpus))))

    @property
    def version(self) -> str:
        return str(tf.__version__)

    def threads(self) -> int:
        """Threads within one operator on the CPU."""
        return int(os.environ.get("TF_NUM_INTRAOP_THREADS", "0")) or os.cpu_count() or 1

    def describe_device(self) -> str:
        if not self._gpus:
            return f"{self.device} ({'oneDNN' if has_onednn() else 'Eigen'})"
        details = tf.config.experimental.get_device_details(self._gpus[0])
        return str(details.get("device_name", self.device))

    def refusal(self, error: Exception) -> str:
        """The line that names the kernel which is lacking."""
        if not isinstance(error, (tf.errors.OpError, TypeError)):
            return ""
        lines = str(error).splitlines() or [""]
        told = [line for line in lines if any(phrase in line for phrase in LACKING)]
        unimplemented = isinstance(error, tf.errors.UnimplementedError)
        return (told or (lines if unimplemented else [""]))[0][:300]

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Any:
        return tf.constant(array.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else array)

    def get(self, tensor: Any) -> tuple[NDArray[Any], str]:
        return bits(np.asarray(tensor.numpy()))

    def wait(self, tensors: Sequence[Any]) -> None:
        tf.test.experimental.sync_devices()

    def peak_memory(self) -> int | None:
        if not self._gpus:
            return None
        peak = int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
        tf.config.experimental.reset_memory_stats("GPU:0")
        return peak

    def vjp(
        self,
        function: Callable[..., Any],
        inputs: Sequence[Any],
        grads: Sequence[Any],
        wanted: Sequence[int],
    ) -> tuple[tuple[Any, ...], list[Any]]:
        return pulled(function, inputs, grads, wanted)
