"""Native operators as PyTorch's own: `torch.ops.d5test.IPow(x, power=3)`.

Kernels and derivatives are C++ (`source/torch.cpp`), compiled once for each PyTorch; schemas and
fake kernels are here. What a check calls is the same operator in the namespace `d5test_guarded`.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
from torch.utils import cpp_extension

from d5test.backends.base import Plan, Row, Table
from d5test.backends.torch import Torch, TorchCompiled
from d5test.native import compiler, interface
from d5test.native.bridges import asked, available, first_floating, row, shapes, sources
from d5test.native.library import Choice, Declared

SOURCE = Path(__file__).with_name("source") / "torch.cpp"
SPACES: Mapping[bool, str] = MappingProxyType({False: "d5test", True: "d5test_guarded"})
"""Namespaces, by whether their operators run between guard zones."""
TYPES: Mapping[int, str] = MappingProxyType(
    {
        interface.INTEGER: "int",
        interface.REAL: "float",
        interface.TEXT: "str",
        interface.INTEGERS: "int[]",
        interface.REALS: "float[]",
    }
)


def toolchain() -> tuple[list[str], list[str]]:
    """The compiler's flags and libraries for a library of this PyTorch's."""
    cuda = bool(torch.version.cuda and cpp_extension.CUDA_HOME)
    flags = [f"-isystem{path}" for path in cpp_extension.include_paths("cuda" if cuda else "cpu")]
    flags += [f"-L{path}" for path in cpp_extension.library_paths()]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"]
    libraries = ["-lc10", "-ltorch_cpu", "-ltorch"]
    if cuda:
        flags, libraries = [*flags, "-DD5TEST_CUDA"], [*libraries, "-lc10_cuda"]
    return flags, libraries


@cache
def bridge() -> ctypes.CDLL:
    """The compiled half of the bridge."""
    flags, libraries = toolchain()
    flags = [*flags, "-O2"]  # half the time to compile
    return ctypes.CDLL(str(compiler.bridge(SOURCE, str(torch.__version__), flags, libraries)))


def operator(one: Declared, *, guarded: bool) -> Callable[..., Any]:
    """The operator, entered into the dispatcher: once, before anything is traced."""
    space = SPACES[guarded]
    library = torch.library.Library(space, "FRAGMENT")
    _KEPT.append(library)
    attributes = "".join(f", {_argument(choice)}" for choice in one.attributes)
    starred = f", *{attributes}" if attributes else ""
    library.define(f"{one.name}({_inputs(one)}{starred}) -> {_outputs(one)}")
    torch.library.register_fake(f"{space}::{one.name}", partial(_fake, one), lib=library)
    if one.differentiable:
        kind = "Tensor[]" if one.plain else "Tensor?[]"
        lists = f"{kind} grads, {kind} inputs, Tensor[] outputs"
        library.define(f"{one.name}_backward({lists}{starred}) -> Tensor[]")
        fake = partial(_fake_backward, one)
        torch.library.register_fake(f"{space}::{one.name}_backward", fake, lib=library)
    register = bridge().d5test_torch_register
    register.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32)
    register.restype = None
    register(ctypes.addressof(one.table), space.encode(), guarded)
    overload: Callable[..., Any] = getattr(getattr(torch.ops, space), one.name).default
    return overload


_KEPT: list[Any] = []
"""What unregisters its operators when it is collected."""


def _argument(choice: Choice) -> str:
    default = list(choice.default) if isinstance(choice.default, tuple) else choice.default
    shown = f'"{default}"' if choice.kind == interface.TEXT else str(default)
    return f"{TYPES[choice.kind]} {choice.name}={shown}"


def _inputs(one: Declared) -> str:
    """An input that may be absent is None, and need not be given if the last ones are."""
    needed = max((k for k, port in enumerate(one.inputs) if not port.optional), default=-1)
    return ", ".join(
        f"{'Tensor?' if port.optional else 'Tensor'} {port.name}{'=None' if k > needed else ''}"
        for k, port in enumerate(one.inputs)
    )


def _outputs(one: Declared) -> str:
    """Outputs of which some may be absent are a list of those that are there."""
    return "Tensor[]" if _listed(one) else f"({', '.join('Tensor' for _ in one.outputs)})"


def _listed(one: Declared) -> bool:
    return any(port.optional for port in one.outputs)


def _fake(one: Declared, *inputs: Any, **attributes: Any) -> Any:
    first = first_floating(one, inputs, torch.is_floating_point)
    sizes = shapes(one, inputs, attributes, 8 * first.element_size())
    outputs = [
        first.new_empty(size, dtype=torch.int64 if port.whole else first.dtype)
        for port, size in zip(one.outputs, sizes, strict=False)
    ]
    return outputs if _listed(one) else tuple(outputs) if len(outputs) > 1 else outputs[0]


def _fake_backward(
    one: Declared,
    grads: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    **attributes: Any,
) -> list[Any]:
    return [
        x.new_empty(x.shape)
        for port, x in zip(one.inputs, inputs, strict=True)
        if x is not None and x.is_floating_point() and not port.constant
    ]


def plan(one: Declared, call: Callable[..., Any], op: Any, *inputs: Any) -> Plan:
    """The operator with its attributes bound."""
    return partial(call, **asked(one, op, inputs))


def rows() -> dict[str, Row]:
    """The rows of all native operators."""
    return {
        one.name: row(
            one,
            partial(plan, one, operator(one, guarded=False)),
            partial(plan, one, operator(one, guarded=True)),
        )
        for one in available()
    }


class NativeTorch(Torch):
    """PyTorch with native operators."""

    rows = Table({**Torch.rows, **rows()})
    sources: ClassVar[Mapping[str, str]] = sources()


class NativeTorchCompiled(NativeTorch, TorchCompiled):
    """`torch.compile` with native operators."""
