"""How a reproducer makes the backend and calls the operator on it."""

from __future__ import annotations

import base64
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
from d5test.reproducer.module import Inseparable

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
    if about.implementation:
        return _session(fault, about, closure)
    path = Path(where) if where.endswith(".py") else None
    try:
        module = closure.module(path.stem if path else where, path)
    except (OSError, SyntaxError) as error:
        raise Inseparable(f"{where} cannot be read: {error}") from None
    if closure.resolved(module, name) is None:
        raise Inseparable(f"{where} does not define {name} by a class statement")
    row = about.rows[fault.case.op.name]
    if not row.call:
        raise Inseparable(f"the row of {fault.case.op.name} is not written down by a name")
    evidence = fault.evidence
    closure.attributes |= {
        *OWED,
        "compile",
        *(("vjp",) if any(feed.grads is not None for feed in evidence.feeds) else ()),
        *(("refill", "mutable") if evidence.reuse else ()),
        *(("compilations", "reset") if fault.kind == "not compiled" else ()),
    }
    closure.use(module.name, name)
    for file, where, function in row.functions:
        stands = Path(file)
        known = path.stem if path is not None and stands == path else where
        closure.use(closure.module(known, stands).name, function)
    imports = ["from functools import partial"] if "partial(" in row.call else []
    if f"{about.framework}." in row.call:
        imports.append(f"import {about.framework}")
    return Subject(
        tuple(imports),
        (
            f"backend = {name}({about.device!r})",
            f"function = backend.compile(lambda *inputs: {row.call})",
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


def _session(fault: Fault, about: Any, closure: Closure) -> Subject:
    """A model of the one operator, and the runtime alone."""
    model = textwrap.wrap(base64.b64encode(zlib.compress(_model(fault), 9)).decode(), 92)
    lines = "\n".join(f'    "{line}"' for line in model)
    made = "Session(MODEL)"
    needs = "Needs onnxruntime and NumPy alone."
    if about.framework != "onnxruntime":
        made = f"Prepared(MODEL, {about.implementation!r}, {about.framework!r})"
        needs = f"Needs {about.framework}, onnx and NumPy."
    closure.attributes |= {*OWED, "load", *(("refill", "mutable") if fault.evidence.reuse else ())}
    closure.use(SESSION, made)
    return Subject(
        (f"MODEL = (\n{lines}\n)",), (f"backend = {made}", "function = backend.__call__"), needs
    )


def _model(fault: Fault) -> bytes:
    """The serialized model of the operator on its first inputs, in its own operator set."""
    import onnx.defs

    from d5test.backends.onnx import build_model

    op, inputs = fault.case.op, fault.evidence.feeds[0].inputs
    known = onnx.defs.get_schema(op.name, op.since).attributes
    attributes = {name: value for name, value in op.attributes.items() if name in known}
    model, _ = build_model(op.name, attributes, inputs, op.since)
    content: bytes = model.SerializeToString()
    return content
