"""An ONNX model as a reproducer runs it: in ONNX Runtime, or in another implementation.

Copied into reproducers, never called here. Arrays as in `calls`. The model is loaded by the
first call, so that refusing it is an answer to the call; packages are imported before, since a
missing one is none.
"""

from __future__ import annotations

import base64
import importlib
import importlib.metadata
import zlib
from typing import Any

import numpy as np


class Session:
    """A model of one operator in ONNX Runtime. An absent input is no input of the model."""

    mutable = True

    def __init__(
        self, model: str, module: str = "onnxruntime", package: str = "onnxruntime"
    ) -> None:
        self.model = zlib.decompress(base64.b64decode(model))
        self.runtime, self.package = importlib.import_module(module), package
        self.loaded: Any = None

    @property
    def version(self) -> str:
        """The runtime's."""
        return importlib.metadata.version(self.package)

    def load(self) -> Any:
        """A function of the inputs."""
        providers = ["CPUExecutionProvider"]
        session = self.runtime.InferenceSession(self.model, providers=providers)
        names = [given.name for given in session.get_inputs()]
        return lambda arrays: session.run(None, dict(zip(names, arrays, strict=False)))

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs."""
        self.loaded = self.loaded or self.load()
        return tuple(self.loaded([x for x in inputs if x is not None]))

    def put(self, array: Any, dtype: str, layout: str = "contiguous") -> Any:
        """A NumPy array."""
        if dtype != "bfloat16":
            return np.array(array)
        import ml_dtypes

        return np.array(array).view(ml_dtypes.bfloat16)

    def refill(self, tensor: Any, array: Any, dtype: str) -> None:
        """Overwrite an array."""
        tensor[...] = self.put(array, dtype)

    def get(self, tensor: Any) -> tuple[Any, str]:
        """A copy, and its dtype."""
        array = np.array(tensor)
        if array.dtype.name == "bfloat16":
            return array.view(np.uint16), "bfloat16"
        return array, array.dtype.name

    def wait(self, tensors: Any) -> None:
        """Nothing: it returns when it has computed."""


class Prepared(Session):
    """The same in an implementation of `onnx.backend`: a module, or `module:Class`.

    `package` is what its version is that of.
    """

    def __init__(self, model: str, implementation: str, package: str) -> None:
        module, _, name = implementation.partition(":")
        super().__init__(model, module, package)
        self.onnx = importlib.import_module("onnx")
        self.prepare = (getattr(self.runtime, name) if name else self.runtime).prepare

    def load(self) -> Any:
        """A function of the inputs."""
        return self.prepare(self.onnx.load_from_string(self.model), "CPU").run
