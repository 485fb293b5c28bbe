"""What a native operator is judged against, as one of d5test's operators.

Requirements: the operator is never its own judge. Its reference is, in this order, the author's
`CustomPythonOp` in the Python file beside the source; d5test's own operator of the same name, if
it has the same attributes; or none. Without one there is no `forward`, and every check of values
says that it was not made.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Any, ClassVar

from d5test.case import Operator
from d5test.native.custom import CustomPythonOp
from d5test.native.library import Declared


class UnfitReference(Exception):
    """The author's Python file does not fit the C++ file; the text says how."""


class NativeOperator(Operator):
    """An operator whose attributes are those that a library declares."""

    domain: ClassVar[str] = "d5test"


class Written(NativeOperator):
    """One whose reference is an author's `CustomPythonOp`."""

    python: ClassVar[type[CustomPythonOp]]

    @property
    def custom(self) -> CustomPythonOp:
        """The author's operator with these attributes."""
        return self.python(**self.attributes)

    def forward(self, *inputs: Any) -> Any:
        """The author's reference."""
        return self.custom.forward(inputs)


class Differentiated(Written):
    """One whose reference has a gradient."""

    def backward(self, grads: Any, inputs: Any, outputs: Any) -> Any:
        """The author's reference."""
        return self.custom.backward(grads, inputs, outputs)


def operator(declared: Declared, source: Path) -> type[Operator]:
    """The operator that a declared one is judged as.

    Raises `UnfitReference` where the author's Python file cannot be loaded or does not fit.
    """
    python = _beside(declared, source)
    ours = None if python else _ours(declared)
    if ours is not None:
        return ours
    base: type[NativeOperator] = NativeOperator
    stopped = tuple(k for k, port in enumerate(declared.outputs) if port.whole)
    members: dict[str, Any] = {
        "__doc__": f"{declared.name} of {source}.",
        "stopped_outputs": stopped,
    }
    if python is not None:
        _require_attributes(declared, python, source)
        base = Written if python.backward is CustomPythonOp.backward else Differentiated
        members["python"] = python
    fields = [
        (choice.name, type(choice.default), field(default=choice.default))
        for choice in declared.attributes
    ]
    return make_dataclass(
        declared.name, fields, bases=(base,), namespace=members,
        frozen=True, kw_only=True, repr=False,
    )  # fmt: skip


def _beside(declared: Declared, source: Path) -> type[CustomPythonOp] | None:
    """The class for this operator in the Python file of the same name, if there is one."""
    path = source.with_suffix(".py")
    if not path.is_file():
        return None
    found = {cls.__name__: cls for cls in _classes(path)}
    for name in (declared.name, f"{declared.name}Op"):
        if name in found:
            return found[name]
    raise UnfitReference(
        f"{path} has no class {declared.name} or {declared.name}Op derived from CustomPythonOp; "
        f"it has {', '.join(found) or 'none at all'}"
    )


def _classes(path: Path) -> Iterator[type[CustomPythonOp]]:
    name = f"d5test_native_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001 (whatever the author's module raises)
        raise UnfitReference(f"{path}: {type(error).__name__}: {error}") from None
    for value in vars(module).values():
        if isinstance(value, type) and issubclass(value, CustomPythonOp):
            yield value


def _require_attributes(declared: Declared, python: type[CustomPythonOp], source: Path) -> None:
    wanted = [choice.name for choice in declared.attributes]
    taken = list(inspect.signature(python).parameters)
    if sorted(wanted) != sorted(taken):
        raise UnfitReference(
            f"{python.__name__}.__init__ takes {', '.join(taken) or 'nothing'}, and {source.name} "
            f"registers the attributes {', '.join(wanted) or 'none'}"
        )


def _ours(declared: Declared) -> type[Operator] | None:
    """d5test's own operator of this name, unless attributes are registered that it lacks."""
    from d5test.reference.operators import OPERATORS

    ours = OPERATORS.get(declared.name)
    if ours is None:
        return None
    known = set(ours.__dataclass_fields__)
    unknown = [c.name for c in declared.attributes if c.name not in known]
    if unknown:
        raise UnfitReference(
            f"{declared.name} is an operator of ONNX without {', '.join(unknown)}: "
            "register it by another name"
        )
    return ours
