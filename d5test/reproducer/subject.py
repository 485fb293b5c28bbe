"""How a reproducer makes the backend and calls the operator on it."""

from __future__ import annotations

import ast
import base64
import re
import textwrap
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d5test.backends.updater import environment
from d5test.client import registry
from d5test.outcome.fault import Fault
from d5test.reference.steps import Step
from d5test.reproducer.closure import Closure
from d5test.reproducer.module import Inseparable, Module
from d5test.reproducer.rows import callee

SESSION = "d5test.reproducer.session"
OWED = ("put", "get", "wait", "version")
"""The methods of a backend that every reproducer calls."""


@dataclass(frozen=True)
class Subject:
    """What is called.

    statements   what stands before the data
    preparation  lines that define `backend` and `function`
    needs        a sentence on what the file needs
    whole        whether rows are given all attributes in a dictionary besides
    """

    statements: tuple[str, ...]
    preparation: tuple[str, ...]
    needs: str
    whole: bool = False


def taken_apart(fault: Fault, about: Any, closure: Closure) -> Subject:
    """The row's own function and the backend's methods, from their source.

    Raises `Inseparable` where they cannot be taken out of it.
    """
    where, _, name = registry.resolve(about.name).target.rpartition(":")
    if fault.case.op.name in about.sources:
        return compiled(about, about.sources[fault.case.op.name])
    own = environment([fault.case.op.rule]) if isinstance(fault.case.op, Step) else {}
    if own:
        return with_rule(about, own)
    path = Path(where) if where.endswith(".py") else None
    try:
        module = closure.module(path.stem if path else where, path)
    except (OSError, SyntaxError) as error:
        raise Inseparable(f"{where} cannot be read: {error}") from None
    found = closure.resolved(module, name)
    if found is None:
        raise Inseparable(f"{where} does not define {name} by a class statement")
    if closure.derives(*found, "OnnxBackend"):
        return _session(fault, about, closure, *found)
    row = callee(closure, module, name, fault.case.op.name)
    evidence = fault.evidence
    closure.attributes |= {
        *OWED,
        "compile",
        *(("vjp",) if any(feed.grads is not None for feed in evidence.feeds) else ()),
        *(("refill", "mutable") if evidence.reuse else ()),
        *(("compilations", "reset") if fault.kind == "not compiled" else ()),
    }
    closure.use(module.name, name)
    closure.use(row.module.name, row.expression)
    operator = "OP, " if row.attributes else ""
    plain = re.fullmatch(r"[\w.]+", row.expression)
    called = row.expression if plain else f"({row.expression})"
    call = f"{called}({operator}*inputs)" + ("(*inputs)" if row.planned else "")
    return Subject(
        (),
        (
            f"backend = {name}({about.device!r})",
            f"function = backend.compile(lambda *inputs: {call})",
        ),
        f"Needs {about.framework} and NumPy alone.",
    )


def compiled(about: Any, source: str) -> Subject:
    """The backend with the operators of a source, which is compiled anew when it has changed."""
    target, path = registry.resolve(about.name).target, str(Path(source).absolute())
    return Subject(
        ("from d5test.native.bridges import with_native",),
        (
            f"backend = with_native({target!r}, {path!r})({about.device!r})",
            "row = backend.rows[OP.name]",
            "function = backend.compile(lambda *inputs: row.call(OP, *inputs))",
        ),
        f"Needs d5test, a compiler and {path}.",
        whole=True,
    )


def with_rule(about: Any, own: Mapping[str, str]) -> Subject:
    """The backend, which is told of an update rule of a user's own."""
    target = registry.resolve(about.name).target
    return Subject(
        (
            "import os",
            "from d5test.backends.updater import with_own_rules",
            "from d5test.worker.worker import load",
        ),
        (
            *(f"os.environ[{name!r}] = {value!r}" for name, value in own.items()),
            f"backend = with_own_rules(load({target!r})({about.device!r}))",
            "row = backend.rows[OP.name]",
            "function = backend.compile(lambda *inputs: row.call(OP, *inputs))",
        ),
        f"Needs d5test, {about.framework} and {', '.join(own.values())}.",
        whole=True,
    )


def imported(about: Any, reason: Exception) -> Subject:
    """The backend, imported as d5test itself imports it."""
    target = registry.resolve(about.name).target
    return Subject(
        ("from d5test.worker.worker import load",),
        (
            f"backend = load({target!r})({about.device!r})",
            "row = backend.rows[OP.name]",
            "function = backend.compile(lambda *inputs: row.call(OP, *inputs))",
        ),
        f"Needs d5test besides {about.framework}, for the backend is imported: {reason}.",
        whole=True,
    )


def _session(
    fault: Fault, about: Any, closure: Closure, module: Module, node: ast.ClassDef
) -> Subject:
    """A model of the one operator, and the runtime alone."""
    model = textwrap.wrap(base64.b64encode(zlib.compress(_model(fault), 9)).decode(), 92)
    lines = "\n".join(f'    "{line}"' for line in model)
    implementation = _constant(closure, module, node, "implementation")
    made = "Session(MODEL)"
    needs = "Needs onnxruntime and NumPy alone."
    if about.framework != "onnxruntime":
        made = f"Prepared(MODEL, {implementation!r}, {about.framework!r})"
        needs = f"Needs {about.framework}, onnx and NumPy."
    closure.modules.clear()
    closure.needed.clear()
    closure.attributes |= {*OWED, "load", *(("refill", "mutable") if fault.evidence.reuse else ())}
    closure.use(SESSION, made)
    return Subject(
        (f"MODEL = (\n{lines}\n)",), (f"backend = {made}", "function = backend.__call__"), needs
    )


def _model(fault: Fault) -> bytes:
    """The serialized model of the operator on its first inputs, in its own operator set."""
    import onnx.defs

    from d5test.backends.onnx.single_node import build_model

    op, inputs = fault.case.op, fault.evidence.feeds[0].inputs
    known = onnx.defs.get_schema(op.name, op.since).attributes
    attributes = {name: value for name, value in op.attributes.items() if name in known}
    model, _ = build_model(op.name, attributes, inputs, op.since)
    content: bytes = model.SerializeToString()
    return content


def _constant(closure: Closure, module: Module, node: ast.ClassDef, name: str) -> Any:
    """The value that a class or an ancestor of it gives to a name in its body."""
    for member in node.body:
        targets = member.targets if isinstance(member, ast.Assign) else []
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return ast.literal_eval(member.value)  # type: ignore[attr-defined]
    for base in node.bases:
        found = closure.resolved(module, base.id) if isinstance(base, ast.Name) else None
        if found is not None:
            return _constant(closure, *found, name)
    raise Inseparable(f"{node.name} does not say its {name}")
