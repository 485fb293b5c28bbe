"""PyTorch, eager and compiled.

Requirements: torch 2.11 or later. Float32 multiplications are IEEE's, not TF32's. A row calls what
a PyTorch user would call; where torch has one function for the usual attributes only, the row
composes the others and says so in its docstring. Views (reshape, permute, split, slices, expand)
are returned as torch returns them: sharing memory with the input.

The other modules have the rows, one a family.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from d5test.backends.base import Backend, Function, Pulled, Table, Template, Tensors, Unsupported
from d5test.backends.torch.forms import forms
from d5test.backends.torch.optimizers import TorchReference, TorchUpdater
from d5test.processor import onednn_extensions

rows = Table.of(__name__)
TEMPLATE = Template(
    imports="import torch",
    tensor="torch.tensor({values}, dtype=torch.{dtype})",
    array="{y}.detach().double().numpy()",
    dtype='str({y}.dtype).rpartition(".")[2]',
    gradient="for x in [{inputs}]:\n    x.requires_grad_()\ny = {call}\n"
    "results = torch.autograd.grad(y, [{inputs}], dy, allow_unused=True)",
)


class Torch(Backend):
    """PyTorch as a user calls it, one function after another."""

    framework = "torch"
    rows = rows
    forms = forms
    offers: ClassVar[Mapping[str, str]] = {
        "torch.nn.functional": "torch.nn.functional",
        "torch": "torch",
        "torch.special": "torch.special",
        "torch.linalg": "torch.linalg",
        "torch.nn": "torch.nn",
        "Tensor": "torch.Tensor",
    }
    layouts = ("contiguous", "transposed", "strided", "offset", "broadcast", "channels_last")
    template = TEMPLATE
    mutable = True
    updaters: ClassVar[Mapping[str, Any]] = {"native": TorchUpdater, "reference": TorchReference}

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    def allow_tf32(self) -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True

    @classmethod
    def devices(cls) -> tuple[str, ...]:
        return ("cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count())))

    def threads(self) -> int:
        """Threads within one operator on the CPU."""
        return int(torch.get_num_threads())

    def describe_device(self) -> str:
        if torch.device(self.device).type == "cpu":
            vectors = torch.backends.cpu.get_cpu_capability()
            return f"cpu ({', '.join([vectors, *onednn_extensions()])})"
        return str(torch.cuda.get_device_name(self.device))

    def refusal(self, error: Exception) -> str:
        """`"avg_pool3d_out_frame" not implemented for 'Half'`, for one."""
        return str(error) if isinstance(error, NotImplementedError) else ""

    @property
    def version(self) -> str:
        return str(torch.__version__)

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Tensor:
        """What lies between the values of a strided or before an offset tensor is NaN (or 0)."""
        x = self._tensor(array, dtype)
        filler = math.nan if x.is_floating_point() else 0
        if layout == "transposed":
            return x.mT.contiguous().mT if x.ndim > 1 else x
        if layout == "strided":
            return torch.stack((x, torch.full_like(x, filler)), -1)[..., 0]
        if layout == "offset":
            return torch.cat((x.new_full((1,), filler), x.flatten()))[1:].view(x.shape)
        if layout == "broadcast":
            self._one_slice(array)
            return x[:1].clone().expand_as(x)
        if layout == "channels_last":
            if x.ndim not in (4, 5):
                raise Unsupported(f"channels_last has 4 or 5 axes, not {x.ndim}")
            last = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
            return x.contiguous(memory_format=last)
        return x

    def _tensor(self, array: NDArray[Any], dtype: str) -> Tensor:
        x = torch.from_numpy(np.array(array, order="C"))
        return (x.view(torch.bfloat16) if dtype == "bfloat16" else x).to(self.device)

    @staticmethod
    def _one_slice(array: NDArray[Any]) -> None:
        if array.ndim == 0 or len({one.tobytes() for one in array}) != 1:
            raise Unsupported("a broadcast tensor has equal slices along its first axis")

    def refill(self, tensor: Tensor, array: NDArray[Any], dtype: str) -> None:
        x = self._tensor(array, dtype)
        if tensor.ndim and tensor.stride(0) == 0 and len(tensor) > 1:
            self._one_slice(array)
            tensor, x = tensor[0], x[0]
        tensor.copy_(x)

    def get(self, tensor: Tensor) -> tuple[NDArray[Any], str]:
        x, name = tensor.detach().cpu(), str(tensor.dtype).removeprefix("torch.")
        return np.array((x.view(torch.uint16) if name == "bfloat16" else x).numpy()), name

    def wait(self, tensors: Sequence[Any]) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def vjp(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        """An input that is given twice, as one object, gets the sum of both gradients."""
        leaves = {id(inputs[i]): inputs[i].detach().requires_grad_() for i in wanted}
        outputs = function(*(leaves.get(id(x), x) for x in inputs))
        outputs = tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)
        flowing = [
            (y, dy)
            for y, dy in zip(outputs, grads, strict=True)
            if dy is not None and y.requires_grad
        ]
        values = tuple(y.detach() for y in outputs)
        if not flowing:
            return values, [None] * len(wanted)
        ys, dys = zip(*flowing, strict=True)
        xs = [leaves[id(inputs[i])] for i in wanted]
        return values, list(torch.autograd.grad(ys, xs, dys, allow_unused=True))

    def peak_memory(self) -> int | None:
        if self.device == "cpu":
            return None
        most = int(torch.cuda.max_memory_allocated(self.device))
        torch.cuda.reset_peak_memory_stats(self.device)
        return most


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

    def compile(self, function: Function) -> Function:
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
