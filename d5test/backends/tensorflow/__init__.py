"""TensorFlow, eager, as graphs (tf.function) and compiled by XLA (jit_compile=True).

ONNX keeps channels second, TensorFlow's CPU kernels keep them last: convolutions and pooling
transpose, pad and split groups around the native function. That moves values and rounds none, so
these rows are native. tf.nn.convolution's own way to dilate is to move values, too.

In graphs, integers that become shapes or axes must be known when the graph is made: where an
operator asks for such a value, all its integer inputs become constants, and new ones a new graph.

Eigen sums float16 in float16 (a column of 16384 ones has the sum 2048), hence the class S of every
row that sums, be it only in the gradient of an input that was broadcast.

The other modules have the rows, one per family. `framework` imports the framework for all of them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from d5test.backends.base import (
    Backend,
    Function,
    Pulled,
    Pushed,
    Table,
    Template,
    Tensors,
    bits,
    from_bits,
)
from d5test.backends.tensorflow.forms import forms
from d5test.backends.tensorflow.framework import ValueNeeded, tf
from d5test.backends.tensorflow.kernels import of_graph
from d5test.backends.tensorflow.optimizers import KerasUpdater, TensorFlowReference
from d5test.processor import onednn_extensions

rows = Table.of(__name__)
TEMPLATE = Template(
    imports="import tensorflow",
    tensor='tensorflow.constant({values}, "{dtype}")',
    array='tensorflow.cast({y}, "float64").numpy()',
    dtype="{y}.dtype.name",
    gradient="with tensorflow.GradientTape() as tape:\n    tape.watch([{inputs}])\n"
    "    y = {call}\nresults = tape.gradient(y, [{inputs}], dy)",
    tangent="with tensorflow.autodiff.ForwardAccumulator([{inputs}], [{tangents}]) as forward:\n"
    "    results = [forward.jvp({call})]",
    second_gradient="twice, tape = tensorflow.GradientTape(), tensorflow.GradientTape()\n"
    "with twice, tape:\n    [each.watch([{inputs}]) for each in (twice, tape)]\n"
    "    dx = tape.gradient({call}, [{inputs}], dy)\n"
    "results = twice.gradient(dx, [{inputs}], [{tangents}])",
)
LACKING = (
    "Could not find device for node",
    "No OpKernel was registered to support",
    "list of allowed values",
    "not supported on CPU",
    "not yet support",
    "Detected unsupported operations",
    "gradient registry has no entry",
)
"""What TensorFlow says when it has no kernel for a dtype, a device or an attribute."""


DYNAMIC = (
    "Dynamic input unexpectedly found for unsupported instruction",
    "but the requested shape has",
    "requires indices shape to be prefix of data_shape",
)
"""What XLA says where a size is known only when it runs, in a gradient above all."""


def pulled(
    function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int], times: int = 1
) -> Pulled:
    """The outputs, and the gradients by the last of `times` passes."""
    sources = [inputs[i] for i in wanted]
    with tf.GradientTape(persistent=times > 1, watch_accessed_variables=False) as tape:
        tape.watch(sources)
        result = function(*inputs)
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    pairs = zip(outputs, grads, strict=False)
    flowing = [(y, tf.cast(dy, y.dtype)) for y, dy in pairs if dy is not None]
    if not flowing:
        return outputs, [None] * len(sources)
    ys, dys = zip(*flowing, strict=True)
    for _ in range(times):
        gradients = tape.gradient(ys, sources, output_gradients=list(dys))
    return outputs, [None if dx is None else tf.convert_to_tensor(dx) for dx in gradients]


def has_onednn() -> bool:
    """Whether oneDNN's kernels are used, which TensorFlow decides by the CPU. It tells nobody but
    its own tests.
    """
    try:
        from tensorflow.python.util import _pywrap_util_port as port

        return bool(port.IsMklEnabled())
    except (ImportError, AttributeError):
        return False


class TensorFlow(Backend):
    """TensorFlow as it runs one function after another. One device a process; TF32 is off."""

    framework = "tensorflow"
    rows = rows
    forms = forms
    offers: ClassVar[Mapping[str, str]] = {
        "tf.nn": "tensorflow.nn",
        "tf.math": "tensorflow.math",
        "tf.linalg": "tensorflow.linalg",
        "tf": "tensorflow",
        "keras.ops": "keras.ops",
        "keras.layers": "keras.layers",
        "keras.activations": "keras.activations",
    }
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

    def nondeterministic(self, operator: str, what: str) -> str:
        if not self._gpus or os.environ.get("TF_DETERMINISTIC_OPS") == "1":
            return ""
        return "TensorFlow is deterministic on a GPU under TF_DETERMINISTIC_OPS=1 alone"

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        gpus = tf.config.list_physical_devices("GPU")
        return ("cpu", *(f"gpu:{i}" for i in range(len(gpus))))

    def threads(self) -> int:
        """Threads within one operator on the CPU."""
        return int(os.environ.get("TF_NUM_INTRAOP_THREADS", "0")) or os.cpu_count() or 1

    def describe_device(self) -> str:
        if not self._gpus:
            library = ["oneDNN", *onednn_extensions()] if has_onednn() else ["Eigen"]
            return f"{self.device} ({', '.join(library)})"
        details = tf.config.experimental.get_device_details(self._gpus[0])
        return str(details.get("device_name", self.device))

    def refusal(self, error: Exception) -> str:
        """The line that names the kernel, or the gradient, which is lacking."""
        if not isinstance(error, (tf.errors.OpError, TypeError, LookupError)):
            return ""
        lines = str(error).splitlines() or [""]
        naming = [line for line in lines if any(phrase in line for phrase in LACKING)]
        unimplemented = isinstance(error, tf.errors.UnimplementedError)
        return (naming or (lines if unimplemented else [""]))[0][:300]

    @property
    def version(self) -> str:
        return str(tf.__version__)

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Any:
        return tf.constant(from_bits(array, dtype))

    def get(self, tensor: Any) -> tuple[NDArray[Any], str]:
        return bits(np.asarray(tensor.numpy()))

    def wait(self, tensors: Sequence[Any]) -> None:
        tf.test.experimental.sync_devices()

    def kernel_names(self, function: Function, inputs: Tensors) -> tuple[str, ...]:
        return tuple(dict.fromkeys(of_graph(function, inputs, xla=self.mode == "xla")))

    def peak_memory(self) -> int | None:
        if not self._gpus:
            return None
        peak = int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
        tf.config.experimental.reset_memory_stats("GPU:0")
        return peak

    def vjp(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        return pulled(function, inputs, grads, wanted)

    def vjp_again(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        return pulled(function, inputs, grads, wanted, times=2)

    def jvp(self, function: Function, inputs: Tensors, tangents: Tensors) -> Pushed:
        moving = [i for i, t in enumerate(tangents) if t is not None]
        primals, moves = ([xs[i] for i in moving] for xs in (inputs, tangents))
        with tf.autodiff.ForwardAccumulator(primals, moves) as forward:
            result = function(*inputs)
        outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        moved = [forward.jvp(y) if y.dtype.is_floating else None for y in outputs]
        return outputs, [None if t is None else tf.convert_to_tensor(t) for t in moved]

    def hvp(
        self,
        function: Function,
        inputs: Tensors,
        grads: Tensors,
        tangents: Tensors,
        wanted: Sequence[int],
    ) -> Pulled:
        """The gradient of <gradient, tangents>: Hessians are symmetric."""
        sources = [inputs[i] for i in wanted]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            outputs, first = pulled(function, inputs, grads, wanted)
        pairs = [(dx, tangents[i]) for i, dx in zip(wanted, first, strict=True) if dx is not None]
        if not pairs:
            return outputs, [None] * len(sources)
        dxs, moves = zip(*pairs, strict=True)
        slopes = tape.gradient(dxs, sources, output_gradients=list(moves))
        return outputs, [None if s is None else tf.convert_to_tensor(s) for s in slopes]


class Traced:
    """A function as graphs: one for each pattern of arguments, and in it one for their shapes.

    Arguments that are the same tensor are one argument of the graph: its gradient is whole.
    """

    def __init__(self, owner: TensorFlowCompiled, function: Function) -> None:
        self.owner, self.function = owner, function
        self.graphs: dict[tuple[Any, ...], Any] = {}
        self.values: tuple[int, ...] = getattr(function, "values", ())
        self.fixed = False
        """Whether integers, booleans and what the row reads are constants of the graph."""

    def __call__(self, *inputs: Any) -> Any:
        if not tf.executing_eagerly():  # within another graph
            return self.function(*inputs)
        try:
            return self._run(inputs)
        except ValueNeeded:
            self.fixed = True
            return self._run(inputs)

    def _run(self, inputs: Sequence[Any]) -> Any:
        tensors: list[Any] = []
        places: dict[int, int] = {}
        pattern: list[Any] = []
        for i, x in enumerate(inputs):
            if x is None:
                pattern.append(None)
            elif self.fixed and (not x.dtype.is_floating or i in self.values):
                pattern.append((x.dtype.name, tuple(x.shape), x.numpy().tobytes()))
            else:
                place = places.setdefault(id(x), len(tensors))
                pattern.append(place)
                if place == len(tensors):
                    tensors.append(x)
        key = tuple(pattern)
        if key not in self.graphs:
            self.graphs[key] = self._graph(key)
        return self.graphs[key](*tensors)

    def _graph(self, pattern: tuple[Any, ...]) -> Any:
        def traced(*tensors: Any) -> Any:
            outputs = self.function(*(argument(place, tensors) for place in pattern))
            self.owner.traces += 1
            return outputs

        return tf.function(traced, autograph=False, jit_compile=self.owner.xla)


def argument(place: Any, tensors: Sequence[Any]) -> Any:
    if place is None or isinstance(place, int):
        return None if place is None else tensors[place]
    dtype, shape, data = place
    return tf.constant(np.frombuffer(data, tf.as_dtype(dtype).as_numpy_dtype).reshape(shape))


class TensorFlowCompiled(TensorFlow):
    """Graphs by tf.function; the gradient is part of the graph."""

    mode = "compiled"
    compiles_quickly = True
    template = replace(
        TEMPLATE, compiled="tensorflow.function({function}, autograph=False, jit_compile=False)"
    )
    xla = False

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self._pulls = lru_cache(maxsize=16)(self._trace_pull)
        self.traces = 0

    def compile(self, function: Function) -> Function:
        return Traced(self, function)

    def vjp(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        inner = function.function if isinstance(function, Traced) else function
        outputs, gradients = self._pulls(inner, len(inputs), tuple(wanted))(*inputs, *grads)
        return tuple(outputs), list(gradients)

    def _trace_pull(self, function: Function, n: int, wanted: tuple[int, ...]) -> Traced:
        def pull(*both: Any) -> Any:
            return pulled(function, both[:n], both[n:], wanted)

        pull.values = getattr(function, "values", ())  # type: ignore[attr-defined]
        return Traced(self, pull)

    def compilations(self) -> int | None:
        return self.traces

    def reset(self) -> None:
        self._pulls.cache_clear()


class TensorFlowXla(TensorFlowCompiled):
    """Graphs compiled by XLA; what XLA cannot compile raises, nothing falls back."""

    mode = "xla"
    template = replace(
        TEMPLATE, compiled="tensorflow.function({function}, autograph=False, jit_compile=True)"
    )
    ulps: ClassVar[Mapping[str, float]] = {**TensorFlow.ulps, "sinh": 25, "cosh": 25}
    """24.9 ULPs at 67, of 2 10^6 float32 arguments of TensorFlow 2.21's XLA on the CPU."""
    xla = True

    def refusal(self, error: Exception) -> str:
        dynamic = isinstance(error, tf.errors.OpError) and any(p in str(error) for p in DYNAMIC)
        return str(error).splitlines()[0][:300] if dynamic else super().refusal(error)
