"""PyTorch under `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from d5test.backends.torch.eager import TEMPLATE, Torch


class TorchCompiled(Torch):
    """`torch.compile` of the whole function, once for each shape; it never falls back to eager."""

    mode = "compiled"
    template = replace(
        TEMPLATE, compiled="torch.compile({function}, fullgraph=True, dynamic=False)"
    )

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        from torch import _dynamo  # as long an import as torch's own, which eager mode spares
        from torch._inductor import config

        self._dynamo = _dynamo
        _dynamo.config.fail_on_recompile_limit_hit = True
        # a graph that an earlier process compiled is found by its nodes' names and torch's Python
        # files: one of kernels that have changed since in C++ would be judged
        config.force_disable_caches = True

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Tensor:
        x = super().put(array, dtype, layout)
        self._make_known(x, array)
        return x

    def refill(self, tensor: Tensor, array: NDArray[Any], dtype: str) -> None:
        super().refill(tensor, array, dtype)
        self._make_known(tensor, array)

    @staticmethod
    def _make_known(tensor: Tensor, array: NDArray[Any]) -> None:
        if array.dtype == np.int64 and array.ndim < 2:
            tensor.known = tuple(array.reshape(-1).tolist())

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        compiled = torch.compile(function, fullgraph=True, dynamic=False)

        def call(*inputs: Any) -> Any:
            try:
                return compiled(*inputs)
            except self._dynamo.exc.TorchDynamoException:
                function(*inputs)  # a row's own refusal, else what eager says, comes from here
                raise

        return call

    def compilations(self) -> int:
        return int(self._dynamo.utils.counters["stats"]["unique_graphs"])

    def reset(self) -> None:
        self._dynamo.reset()
        self._dynamo.utils.counters.clear()
