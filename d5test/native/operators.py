"""Native operators, compiled and registered: what `--native` and `compile` make of a file.

Requirements: the operator is never its own judge. Its reference is, in this order, the author's
`CustomPythonOp` in the Python file beside the source; d5test's own operator of the same name, if
it has the same attributes; or none. Without one there is no `forward`, and every check of values
says that it was not made.

Cases are drawn by what the file registers, or as its author says. An axis that has a name has one
size wherever the name stands; `...` is any number of leading axes. Attributes are the default or
one of the others that are registered.
"""

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Any, ClassVar

from d5test.case import Case, Operator, Tensor
from d5test.native import CustomPythonOp, compiler, library
from d5test.native.library import Declared, Port
from d5test.problems import Problem
from d5test.strategies import Draw, choices, inputs
from d5test.values import REGIMES


@dataclass(frozen=True)
class Native:
    """A compiled file: its library, and the operators that it registers, by name."""

    source: Path
    library: Path
    operators: dict[str, type[Operator]]
    declared: dict[str, Declared]


def load(source: str | Path, *, sanitize: bool = False) -> Native:
    """Compile a file, and make its operators drawable.

    Raises `CompileError` with the compiler's words, and `NativeError`, `UnfitReference` or
    `ValueError` with a sentence where file and registration do not fit. What a sanitizer was
    compiled into is declared by a library without: only workers have the sanitizer's runtime.
    """
    source = Path(source)
    plain = compiler.library(source)
    declared = library.declared(plain)
    operators = {name: operator_of(one, source) for name, one in declared.items()}
    for name, operator in operators.items():
        if issubclass(operator, NativeOperator):
            make_drawable(operator, declared[name])
    used = compiler.library(source, sanitize=True) if sanitize else plain
    return Native(source, used, operators, declared)


def compile(source: str | Path) -> type[Operator]:  # noqa: A001 (what it does)
    """The operator of a file that registers one, as a class of d5test's operators.

    It can be drawn (`d5test.strategies.cases`), judged by `d5test.check(function, like=op())` and,
    with `--native`, on every backend that has a bridge. Raises as `load` does.
    """
    native = load(source)
    if len(native.operators) != 1:
        names = ", ".join(native.operators)
        raise library.NativeError(f"{source} registers {names}: use d5test.native.operators.load")
    return next(iter(native.operators.values()))


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


def operator_of(declared: Declared, source: Path) -> type[Operator]:
    """The operator that a declared one is judged as.

    Raises `UnfitReference` where the author's Python file cannot be loaded or does not fit.
    """
    python = _beside(declared, source)
    if python is None and (ours := _ours(declared)) is not None:
        return ours
    base: type[NativeOperator] = NativeOperator
    members: dict[str, Any] = {
        "__doc__": f"{declared.name} of {source}.",
        "stopped_outputs": tuple(k for k, port in enumerate(declared.outputs) if port.whole),
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
    classes = {cls.__name__: cls for cls in _classes(path)}
    for name in (declared.name, f"{declared.name}Op"):
        if name in classes:
            return classes[name]
    raise UnfitReference(
        f"{path} has no class {declared.name} or {declared.name}Op derived from CustomPythonOp; "
        f"it has {', '.join(classes) or 'none at all'}"
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
    unknown = [c.name for c in declared.attributes if c.name not in ours.__dataclass_fields__]
    if unknown:
        raise UnfitReference(
            f"{declared.name} is an operator of ONNX without {', '.join(unknown)}: "
            "register it by another name"
        )
    return ours


INTEGERS = ("below", 2)
"""The regime of integers of which none is registered."""


def make_drawable(operator: type[Operator], declared: Declared) -> None:
    """Make cases of an operator drawable."""
    for port in declared.inputs:
        if port.values and port.regime[0] not in REGIMES:
            raise ValueError(
                f"{declared.name}: input {port.name} has values {port.values!r}; "
                f"there are {', '.join(REGIMES)}"
            )

    choices(operator, **{c.name: (c.default, *c.others) for c in declared.attributes})

    @inputs(operator)
    def draw_inputs(d: Draw, op: Operator) -> tuple[Tensor | None, ...]:
        drawn = op.custom.draw_inputs(d) if isinstance(op, Written) else None
        return drawn if drawn is not None else registered_inputs(d, declared)


def registered_inputs(d: Draw, declared: Declared) -> tuple[Tensor | None, ...]:
    """Inputs with the axes that are registered; optional ones now and then left out."""
    sizes: dict[str, tuple[int, ...]] = {}
    return tuple(_tensor(d, port, sizes) for port in declared.inputs)


def _tensor(d: Draw, port: Port, sizes: dict[str, tuple[int, ...]]) -> Tensor | None:
    if port.optional and d.flag():
        return None
    shape: tuple[int, ...] = ()
    named = port.dims.split()
    for name in named:
        if name == "*" or name not in sizes:
            sizes[name] = _size(d, name, alone=len(named) == 1)
        shape += sizes[name]
    if port.mask and d.flag():
        return d.mask(shape)
    if port.whole:
        return d.tensor(shape, port.regime or INTEGERS, dtype="int64")
    return d.tensor(shape, *((port.regime,) if port.values else ()))


def _size(d: Draw, name: str, *, alone: bool) -> tuple[int, ...]:
    if name == "*":
        return d.shape(least=0)
    if name == "...":
        return d.shape() if alone else d.shape(least=0, most=2)
    return (int(name),) if name.isdigit() else (d.side(empty=True),)


SIZES = (16, 1 << 20)
"""Elements of the largest input, about."""


def problems(operator: type[Operator], declared: Declared) -> Iterator[Problem]:
    """Problems with the default attributes, every named axis as long as the others."""
    axes = max((len(_sides(port, 2)) for port in declared.inputs), default=1)
    for size in SIZES:
        side = round(size ** (1 / max(axes, 1)))
        inputs = tuple(
            Tensor(_sides(port, side), "int64", values=port.regime or INTEGERS)
            if port.whole
            else Tensor(_sides(port, side), values=port.regime or ("normal",))
            for port in declared.inputs
        )
        name = f"{declared.name.lower()}-{'x'.join(map(str, inputs[0].shape))}"
        yield Problem(name, Case(operator(), inputs), f"axes registered in {declared.source}")


def _sides(port: Port, side: int) -> tuple[int, ...]:
    return tuple(int(name) if name.isdigit() else side for name in port.dims.split())
