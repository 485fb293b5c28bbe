"""PyTorch, eager and compiled.

Requirements: torch 2.11 or later. Float32 multiplications are IEEE's, not TF32's. A row calls what
a PyTorch user would call; where torch has one function for the usual attributes only, the row
composes the others and says so in its docstring. Views (reshape, permute, split, slices, expand)
are returned as torch returns them: sharing memory with the input.

The other modules have the rows, one per family.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from d5test.backends.base import (
    Backend,
    Forms,
    Function,
    Pulled,
    Pushed,
    Row,
    Table,
    Template,
    Tensors,
    Unsupported,
)
from d5test.backends.torch.forms import forms
from d5test.backends.torch.forms.transformed import of_rows
from d5test.backends.torch.kernels import Dispatched, of_libraries, on_device
from d5test.backends.torch.optimizers import (
    TorchForeach,
    TorchFused,
    TorchMaximize,
    TorchReference,
    TorchUpdater,
)
from d5test.dtypes import EIGHT_BITS
from d5test.processor import onednn_extensions

rows = Table.of(__name__)
TEMPLATE = Template(
    imports="import torch",
    tensor="torch.tensor({values}, dtype=torch.{dtype})",
    array="{y}.detach().double().numpy()",
    dtype='str({y}.dtype).rpartition(".")[2]',
    gradient="for x in [{inputs}]:\n    x.requires_grad_()\ny = {call}\n"
    "results = torch.autograd.grad(y, [{inputs}], dy, allow_unused=True)",
    tangent="_, t = torch.func.jvp(lambda {inputs}: {call}, ({inputs},), ({tangents},))\n"
    "results = [t]",
    second_gradient="[x.requires_grad_() for x in [{inputs}]]\n"
    "dx = torch.autograd.grad({call}, [{inputs}], dy, create_graph=True)\n"
    "results = torch.autograd.grad(dx, [{inputs}], [{tangents}], allow_unused=True)",
)

UNDERIVED = re.compile(
    r"derivative for \S+ is not implemented$|.*Double backward is unsupported"
    r"|trying to differentiate twice a function that was marked with @once_differentiable"
    r"|In order to use an autograd\.Function with functorch transforms"
)
"""What torch says where a function has no second derivative, or no forward mode, by design."""
NONDETERMINISTIC = "does not have a deterministic implementation"
"""What torch says of an operator that it refuses under `torch.use_deterministic_algorithms`."""


def as_tuple(result: Any) -> tuple[Any, ...]:
    """What a function returned, as a tuple."""
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def tracked(
    function: Function, inputs: Tensors, wanted: Sequence[int]
) -> tuple[tuple[Any, ...], list[Tensor]]:
    """Outputs with their graph, and the variables at `wanted`.

    An input that is given twice, as one object, is one variable, with the sum of both gradients.
    """
    leaves = {id(inputs[i]): inputs[i].detach().requires_grad_() for i in wanted}
    outputs = as_tuple(function(*(leaves.get(id(x), x) for x in inputs)))
    return outputs, [leaves[id(inputs[i])] for i in wanted]


def pulled(
    outputs: Sequence[Any], grads: Tensors, xs: Sequence[Tensor], **kept: bool
) -> list[Any]:
    """Gradients at `xs`; `None` where nothing flows."""
    flowing = [
        (y, dy) for y, dy in zip(outputs, grads, strict=True) if dy is not None and y.requires_grad
    ]
    if not flowing:
        return [None] * len(xs)
    ys, dys = zip(*flowing, strict=True)
    gradients = torch.autograd.grad(ys, xs, dys, allow_unused=True, **kept)
    return list(gradients)


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
    layouts = (
        "contiguous", "transposed", "strided", "sliced", "offset", "broadcast", "channels_last",
        "expanded",
    )  # fmt: skip
    template = TEMPLATE
    mutable = True
    updaters: ClassVar[Mapping[str, Any]] = {
        "native": TorchUpdater,
        "reference": TorchReference,
        "foreach": TorchForeach,
        "fused": TorchFused,
        "maximize": TorchMaximize,
    }

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    def allow_tf32(self) -> None:
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True

    @classmethod
    def transformed(cls, rows: Mapping[str, Row]) -> Forms:
        return of_rows(rows)

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
        """`"avg_pool3d_out_frame" not implemented for 'Half'`, for one, or of a derivative's own
        derivative `derivative for aten::hardsigmoid_backward is not implemented`.
        """
        refused = isinstance(error, NotImplementedError) or UNDERIVED.match(str(error))
        return str(error) if refused else ""

    def nondeterministic(self, operator: str, what: str) -> str:
        if torch.are_deterministic_algorithms_enabled():
            return ""
        if self.device != "cpu":
            return "torch is deterministic on a GPU under torch.use_deterministic_algorithms alone"
        if (operator, what) == ("Gather", "gradients") and self.threads() > 1:
            return (
                "torch adds up the gradient of an indexed tensor in any order, on several threads "
                "without torch.use_deterministic_algorithms"
            )
        return ""

    def lost(self, error: Exception) -> bool:
        return isinstance(error, torch.AcceleratorError)

    @property
    def version(self) -> str:
        return str(torch.__version__)

    def put(self, array: NDArray[Any], dtype: str, layout: str = "contiguous") -> Tensor:
        """A tensor with these values. What lies between those of a strided one, between the rows
        of a sliced one, or before an offset one is NaN (or 0).
        """
        if dtype in EIGHT_BITS:  # torch has few functions of these
            return self.put(array, "uint8", layout).view(getattr(torch, dtype))
        x = self._tensor(array, dtype)
        filler = math.nan if x.is_floating_point() else 0
        if layout == "transposed":
            return x.mT.contiguous().mT if x.ndim > 1 else x
        if layout == "strided":
            return torch.stack((x, torch.full_like(x, filler)), -1)[..., 0]
        if layout == "sliced" and x.ndim:
            return torch.cat((x, x.new_full((*x.shape[:-1], 1), filler)), -1)[..., :-1]
        if layout == "offset":
            return torch.cat((x.new_full((1,), filler), x.flatten()))[1:].view(x.shape)
        if layout == "broadcast":
            self._one_slice(array)
            return x[:1].clone().expand_as(x)
        if layout == "expanded":
            self._one_number(array)
            return x.flatten()[0].clone().expand_as(x)
        if layout == "channels_last":
            if x.ndim not in (4, 5):
                raise Unsupported(f"channels_last has 4 or 5 axes, not {x.ndim}")
            last = torch.channels_last if x.ndim == 4 else torch.channels_last_3d
            return x.contiguous(memory_format=last)
        return x

    def _tensor(self, array: NDArray[Any], dtype: str) -> Tensor:
        x = torch.from_numpy(np.array(array, order="C"))
        if dtype == "bfloat16" or dtype in EIGHT_BITS:
            x = x.view(getattr(torch, dtype))
        elif array.dtype.name != dtype:
            raise Unsupported(f"torch has no numbers of {dtype}")
        return x.to(self.device)

    @staticmethod
    def _one_slice(array: NDArray[Any]) -> None:
        if array.ndim == 0 or len({one.tobytes() for one in array}) != 1:
            raise Unsupported("a broadcast tensor has equal slices along its first axis")

    @staticmethod
    def _one_number(array: NDArray[Any]) -> None:
        if len({one.tobytes() for one in array.ravel()}) != 1:
            raise Unsupported("an expanded tensor is one number, over and over")

    def refill(self, tensor: Tensor, array: NDArray[Any], dtype: str) -> None:
        x = self._tensor(array, dtype)
        if tensor.numel() > 1 and not any(tensor.stride()):
            self._one_number(array)
            first = (0,) * tensor.ndim
            tensor, x = tensor[first], x[first]
        elif tensor.ndim and tensor.stride(0) == 0 and len(tensor) > 1:
            self._one_slice(array)
            tensor, x = tensor[0], x[0]
        tensor.copy_(x)

    def get(self, tensor: Tensor) -> tuple[NDArray[Any], str]:
        x, name = tensor.detach().cpu(), str(tensor.dtype).removeprefix("torch.")
        x = x.view(torch.uint16) if name == "bfloat16" else x
        x = x.view(torch.uint8) if name in EIGHT_BITS else x
        return np.array(x.numpy(force=True)), name  # second gradients may be a lazy zero

    def wait(self, tensors: Sequence[Any]) -> None:
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def wait_to_read(self, tensors: Sequence[Any]) -> None:
        if self.device != "cpu":
            torch.cuda.current_stream(self.device).synchronize()

    def vjp(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        outputs, xs = tracked(function, inputs, wanted)
        return tuple(y.detach() for y in outputs), pulled(outputs, grads, xs)

    def vjp_again(
        self, function: Function, inputs: Tensors, grads: Tensors, wanted: Sequence[int]
    ) -> Pulled:
        outputs, xs = tracked(function, inputs, wanted)
        pulled(outputs, grads, xs, retain_graph=True)
        return tuple(y.detach() for y in outputs), pulled(outputs, grads, xs)

    def jvp(self, function: Function, inputs: Tensors, tangents: Tensors) -> Pushed:
        moving = [i for i, t in enumerate(tangents) if t is not None]

        def of_moving(*chosen: Tensor) -> tuple[Tensor, ...]:
            every = list(inputs)
            for i, x in zip(moving, chosen, strict=True):
                every[i] = x
            return as_tuple(function(*every))

        primals, moves = (tuple(xs[i] for i in moving) for xs in (inputs, tangents))
        outputs, moved = torch.func.jvp(of_moving, primals, moves)
        return outputs, list(moved)

    def hvp(
        self,
        function: Function,
        inputs: Tensors,
        grads: Tensors,
        tangents: Tensors,
        wanted: Sequence[int],
    ) -> Pulled:
        """The gradient of <gradient, tangents>: Hessians are symmetric."""
        moving = {i: inputs[i].detach().requires_grad_() for i in wanted}
        outputs = as_tuple(function(*(moving.get(i, x) for i, x in enumerate(inputs))))
        values = tuple(y.detach() for y in outputs)
        xs = list(moving.values())
        first = pulled(outputs, grads, xs, create_graph=True)
        if not any(dx is not None and dx.requires_grad for dx in first):
            self._refuse_once_differentiable(outputs, grads, xs)
        moves = [None if dx is None else tangents[i] for i, dx in zip(moving, first, strict=True)]
        return values, pulled(first, moves, xs)

    def _refuse_once_differentiable(
        self, outputs: Sequence[Any], grads: Tensors, xs: Sequence[Tensor]
    ) -> None:
        """Raise what torch says where a gradient may not be differentiated.

        It says so only where the upstream gradient has a gradient, and all of the graph is passed.
        """
        varied = [None if dy is None else dy.detach().requires_grad_() for dy in grads]
        first = pulled(outputs, varied, xs, create_graph=True)
        flowing = [dx for dx in first if dx is not None and dx.requires_grad]
        if flowing:
            torch.autograd.backward(flowing, [dx.detach() for dx in flowing])

    def kernel_names(self, function: Function, inputs: Tensors) -> tuple[str, ...]:
        with Dispatched() as dispatched:
            function(*inputs)
        return tuple(dict.fromkeys([*dispatched.names, *self._kernels(function, inputs)]))

    def _kernels(self, function: Function, inputs: Tensors) -> list[str]:
        """Those that are not torch's own."""
        call = partial(function, *inputs)
        return of_libraries(call) if self.device == "cpu" else on_device(call)

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
        known = array.dtype.kind == "i" or array.dtype == np.float32  # scales are float32
        if known and array.ndim < 2:
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

    def kernel_names(self, function: Function, inputs: Tensors) -> tuple[str, ...]:
        """What is compiled has no names; under a mode of dispatch nothing would be compiled."""
        return tuple(dict.fromkeys(self._kernels(function, inputs)))

    def compilations(self) -> int:
        return int(self._dynamo.utils.counters["stats"]["unique_graphs"])

    def reset(self) -> None:
        self._dynamo.reset()
        self._dynamo.utils.counters.clear()


class TorchDeterministic(Torch):
    """PyTorch under `torch.use_deterministic_algorithms(True)`: other kernels, on a GPU above all.

    What has no deterministic algorithm raises, which is its documented refusal.
    """

    template = replace(
        TEMPLATE, imports=f"{TEMPLATE.imports}\n\ntorch.use_deterministic_algorithms(True)"
    )

    def __init__(self, device: str = "cpu") -> None:
        # cuBLAS reads it when it is first called, and is deterministic with it alone
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        super().__init__(device)
        torch.use_deterministic_algorithms(True)

    def refusal(self, error: Exception) -> str:
        refused = isinstance(error, RuntimeError) and NONDETERMINISTIC in str(error)
        return str(error).partition(". ")[0] if refused else super().refusal(error)
