"""ONNX Runtime through its `onnx.backend` interface, with its default graph optimisations.

One model is one node, so what is optimised is the node: its layout, its constants. A float16
node without a kernel of its own is computed in float32 between two casts. Threads come from
OMP_NUM_THREADS, where that is set.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from d5test.backends.onnx import OnnxBackend
from d5test.processor import adds_pairs_in_16_bits

IMAGES = 4
"""The axes of images."""

MADE = ("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix")
"""Operators that make numbers, which ONNX Runtime does in float32 alone."""

DRAWN = (
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
)  # fmt: skip
"""Operators of which ONNX Runtime has kernels up to operator set 21: 22 added bfloat16 alone."""


class OnnxRuntime(OnnxBackend):
    """ONNX Runtime, on the CPU or on what `onnxruntime.backend` supports besides."""

    framework = "onnxruntime"
    implementation = "onnxruntime.backend"
    ulps: ClassVar[Mapping[str, float]] = {"tanh": 6}
    """Measured in float32 on 8e5 points against float64: 5.2; exp, log, erf, pow below 4."""

    def flushes_of(self, operator: str) -> bool:
        """Softmax has an exponential of its own, 0 from -88 on, where Exp's is 6e-39."""
        return operator == "Softmax"

    def single(self, operator: str) -> str:
        """Besides ONNX's: operators without a kernel for float64, run as their function body."""
        if operator in ("Attention", "Gelu", *MADE):
            return "no kernel of its own; ONNX's function body has its constants in float32"
        return super().single(operator)

    def declined(self, operator: str, op: Any, inputs: Sequence[Any]) -> str:
        """Besides: deformed convolutions of volumes."""
        if operator == "DeformConv" and inputs[0].ndim != IMAGES:
            return "ONNX Runtime's DeformConv has images"
        return super().declined(operator, op, inputs)

    def opset_of(self, operator: str) -> int:
        return min(self.opset, 21) if operator in DRAWN else self.opset

    def options(self) -> Mapping[str, Any]:
        return {"intra_op_num_threads": self.threads(), "log_severity_level": 4}

    def arithmetic_of(self, operator: str) -> str:
        """Float16 is computed in float32, but for the scores that Attention stores."""
        return "P" if operator == "Attention" else "F"

    def dtypes_of(self, operator: str) -> tuple[str, ...]:
        """ONNX's, but for bfloat16, which ONNX Runtime does not take from NumPy."""
        if operator in MADE:
            return ("float32",)
        if operator == "TreeEnsemble":  # a float16 one is cast, but for its attributes
            return ("float64", "float32")
        return tuple(dtype for dtype in super().dtypes_of(operator) if dtype != "bfloat16")

    def describe_device(self) -> str:
        """With what MLAS does to products of 8 bits where the processor lacks VNNI."""
        pairs = self.device == "cpu" and adds_pairs_in_16_bits()
        return f"{self.device} (pairs_in_16_bits)" if pairs else self.device

    def threads(self) -> int:
        """Threads within one operator on the CPU."""
        return int(os.environ.get("OMP_NUM_THREADS", "0")) or os.cpu_count() or 1
