"""What a backend says of itself, and what is probed in its worker.

NumPy and the framework only.
"""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import astuple
from functools import partial
from types import MethodType
from typing import Any

import numpy as np

from d5test.backends.base import FLOATS, Backend, Row, Unsupported
from d5test.worker.bound import Bound, OperatorView
from d5test.worker.execution import Execution, rows_of_ours
from d5test.worker.public_names import names_for
from d5test.worker.writing import of_row

HALVES: Mapping[str, tuple[Any, int, int]] = {
    "float16": (np.uint16, 0x0400, 0x3800),
    "bfloat16": (np.uint16, 0x0080, 0x3F00),
    "float32": (np.uint32, 0x0080_0000, 0x3F00_0000),
    "float64": (np.uint64, 0x0010_0000_0000_0000, 0x3FE0_0000_0000_0000),
}
"""The unsigned type of a dtype's bits, the bits of its smallest normal number and of 1/2."""
LANES = 64
"""Elements of a probe: enough for the vector code that larger tensors use."""


def devices(backend: Backend) -> list[str]:
    """The devices that the backend could run on, as `--device` takes them."""
    return list(type(backend).devices())


def describe(execution: Execution) -> dict[str, Any]:
    """The fields of `d5test.client.messages.BackendInfo`, but for the name."""
    backend = execution.backend
    if backend.mode != "eager" and type(backend).compile is Backend.compile:
        raise Unsupported(
            f"its mode is {backend.mode!r}, and it does not override compile(): leave the mode "
            "'eager', in which all checks are made"
        )
    execution.where = "describe"
    names = names_for(backend)
    return {
        "framework": backend.framework,
        "version": str(backend.version),
        "device": backend.device,
        "device_name": backend.describe_device(),
        "mode": backend.mode,
        "rows": {
            name: (*facts_of(row, names), is_ours(backend, row, name))
            for name, row in backend.rows.items()
        },
        "forms": {
            operator: {
                name: (*facts_of(row, names), is_ours(backend, row, operator, name))
                for name, row in forms.items()
            }
            for operator, forms in backend.forms.items()
        },
        "layouts": tuple(backend.layouts),
        "updaters": tuple(backend.updaters),
        "ulps": {name: float(ulps) for name, ulps in backend.ulps.items()},
        "flushes": flushes(execution),
        "nondeterministic": {
            name: {what: backend.nondeterministic(name, what) for what in ("outputs", "gradients")}
            for name in backend.rows
        },
        "compiles_shapes": bool(backend.compiles_shapes),
        "compiles_quickly": bool(backend.compiles_quickly),
        "mutable": bool(backend.mutable),
        "reads_models": bool(backend.reads_models),
        "opset": int(backend.opset),
        "derivatives": derivatives(type(backend)),
        "implementation": backend.implementation,
        "base": base(backend),
        "threads": threads(execution),
        "packages": packages(backend.framework),
        "libraries": libraries(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "pid": os.getpid(),
        "sources": dict(backend.sources),
        "template": backend.template and astuple(backend.template),
    }


def derivatives(kind: type[Backend]) -> tuple[str, ...]:
    """Which of `jvp`, `hvp` and `vjp_again` a class has.

    Not the last where its `vjp` is younger: that may take another way, to other bits.
    """
    names = ("jvp", "hvp", "vjp_again")
    of = {n: next(k for k in kind.__mro__ if n in vars(k)) for n in ("vjp", *names)}
    has = [n for n in names if of[n] is not Backend]
    return tuple(n for n in has if n != "vjp_again" or issubclass(of[n], of["vjp"]))


def base(backend: Backend) -> str:
    """The name of the installed backend that this one is, or whose subclass in the same mode."""
    entries = importlib.metadata.entry_points(group="d5test.backends")
    names = {entry.value: entry.name for entry in entries}
    for cls in type(backend).__mro__:
        name = names.get(f"{cls.__module__}:{cls.__qualname__}", "")
        if name:
            return name if getattr(cls, "mode", "") == backend.mode else ""
    return ""


def facts_of(row: Row, names: Any) -> tuple[Any, ...]:
    """The fields of `d5test.client.messages.RowInfo`, but for the last."""
    return (
        bool(row.native),
        row.outputs,
        row.arithmetic,
        tuple(row.dtypes),
        row.gradient,
        (*row.stopped, *row.constants),
        bool(row.flushes),
        {key: float(ulps) for key, ulps in row.ulps.items()},
        bool(row.rounded_attributes),
        *of_row(row.call, names),
        row.contract,
        bool(row.propagates_nan),
        tuple(row.out_of_range),
        {name: tuple(values) for name, values in row.attributes.items()},
        dict(row.where),
        {int(i): float(value) for i, value in row.constants.items()},
        tuple(row.promotes),
        bool(row.transformed),
    )


def is_ours(backend: Backend, row: Row, operator: str, form: str = "") -> bool:
    """Whether a row, or a form, calls what it does in a backend of d5test's."""
    if any(own.call is row.call for own in rows_of_ours(backend, operator, form)):
        return True
    method = row.call.func if isinstance(row.call, partial) else None  # as an OnnxBackend's is
    return isinstance(method, MethodType) and method.__module__.startswith("d5test.")


def flushes(execution: Execution) -> dict[str, bool]:
    """Whether half the smallest normal number is zero, by dtype; probed with the Mul row.

    A dtype that the row does not take is left out.
    """
    backend, flushed = execution.backend, {}
    if "Mul" not in backend.rows:
        return {}
    bound = Bound(backend, backend.rows["Mul"], OperatorView("Mul", {}))
    for dtype in FLOATS:
        unsigned, smallest, half = HALVES[dtype]
        try:
            patterns = (np.full(LANES, pattern, unsigned) for pattern in (smallest, half))
            typed = (bits if dtype == "bfloat16" else bits.view(dtype) for bits in patterns)
            x, y = (backend.put(array, dtype) for array in typed)
            (product,) = execution.outputs(bound, bound.function(x, y))
            backend.wait([product])
            array, name = backend.get(product)
        except Unsupported:
            continue
        except Exception as error:  # noqa: BLE001 (a missing dtype: the framework's own)
            if backend.refusal(error):
                continue
            print(f"Mul in {dtype} cannot be probed: {type(error).__name__}: {error}", flush=True)
            continue
        if name == dtype:
            magnitude = array.view(unsigned) << unsigned(1)
            flushed[dtype] = not magnitude.any()
    execution.reset()
    return flushed


def threads(execution: Execution) -> int:
    """How many threads the framework computes with: its own word, its libraries', or all cores."""
    count = execution.backend.threads()
    if count is not None:
        return count
    return max((pool["num_threads"] for pool in _pools()), default=os.cpu_count() or 1)


def libraries() -> tuple[str, ...]:
    """Name, version and threads of each; none where the interpreter has no threadpoolctl."""
    words = {f"{p['internal_api']} {p['version']}, {p['num_threads']} threads" for p in _pools()}
    return tuple(sorted(words))


def _pools() -> list[dict[str, Any]]:
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return []
    return list(threadpool_info())


def packages(framework: str) -> dict[str, str]:
    """Versions of the distributions that bring the framework and NumPy."""
    versions: dict[str, str] = {}
    for package in dict.fromkeys((framework, "numpy")):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            names = importlib.metadata.packages_distributions().get(package, ())
            versions |= {name: importlib.metadata.version(name) for name in sorted(set(names))}
    return versions
