"""A fault as one Python file that shows it, with the framework and NumPy alone.

Requirements: the file is short, since its readers are the framework's developers: the row's own
function with what it uses, the data, the claim. It says in one line whether the fault is there,
and ends with status 1 if it is, 0 if it is gone, 2 if it cannot be tried. Its first line names the
interpreter that showed the fault; its name depends on nothing but the fault. Where the source of a
backend cannot be taken apart, the file imports the backend instead, and says that it needs d5test.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from d5test.backends.updater import environment
from d5test.client import registry
from d5test.files import replace
from d5test.outcome.fault import Evidence, Fault
from d5test.reference.steps import Step
from d5test.reproducer import data, short
from d5test.reproducer.closure import Closure, Inseparable
from d5test.reproducer.mark import docstring, head
from d5test.reproducer.trial import folder_of, searched

RUN = "answers(backend, CALLS, {run}, {place}{most})"
CLAIMS: Mapping[str, str] = {
    "within": "within({run}, EXPECTED)",
    "special": "within({run}, EXPECTED)",
    "shaped": "shaped({run}, CALLS)",
    "signed": "signed({run}, EXPECTED)",
    "rounded": "rounded({run}, EXPECTED)",
    "computed": "within({run}, EXPECTED, outputs=True)",
    "repeats": "repeated(lambda: {run}, CALLS)",
    "untouched": "untouched({run}, backend, CALLS)",
    "kept": "kept({run}, backend)",
    "slope": "sloping({run}, CALLS, BAR)",
    "returns": "raised(lambda: {run})",
    "raises": "accepted(lambda: {run})",
    "compiles": "uncompiled(backend, lambda: {run})",
}
"""What is asked of the answers to all calls: functions of `copied`."""
RUNS: Mapping[str, str] = {
    "": "forward(function)",
    "vjp": "differentiated(backend, function)",
    "jvp": "pushed(backend, function)",
    "hvp": "twice(backend, function)",
    "vjp_again": "through_one_graph(backend, function)",
}
"""How a call is made, by the method of the backend that it takes."""
COPIED = "d5test.reproducer.copied"
OF_D5TEST = """\
try:
{imports}
except ModuleNotFoundError as error:
    if error.name != "d5test":
        raise
    what = f"{{sys.executable}} has no d5test; `d5test repro {{__file__}}` brings it"
    raise ImportError(what) from None"""
"""Imports of d5test in a file that may be run without it."""
RESERVED = {"ATTRIBUTES", "CALLS", "EXPECTED", "OP", "backend", "function", "function_of", "main"}
"""Names that reproducers bind themselves."""
OWED = ("put", "get", "wait_to_read", "version")
"""The methods of a backend that every reproducer calls."""


def write(fault: Fault, about: Any, folder: Path, *, brief: bool = False) -> Path:
    """Write the reproducer of a fault into a folder, and return its path.

    `about` is what the backend says of itself (`d5test.client.messages.BackendInfo`). Raises
    `Inseparable` where it should be `brief`, and has no short form.
    """
    text = short.source(fault, about) if brief else source(fault, about)
    path = Path(folder) / file_name(fault, about)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, text)
    return path


def file_name(fault: Fault, about: Any) -> str:
    """OPERATOR-CHECK-DTYPE-BACKEND-HASH.py: the same for the same fault."""
    identity = f"{fault.kind}|{fault.case!r}|{about.name}|{about.version}"
    digest = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:8]
    backend = re.sub(r"\W+", "_", about.name.partition("@")[0].rpartition(":")[2])
    case = fault.case
    return f"{case.op.name}-{fault.check}-{case.dtype}-{backend}-{digest}.py"


def source(fault: Fault, about: Any) -> str:
    """The text of the reproducer."""
    try:
        closure = Closure()
        return _composed(fault, about, closure, taken_apart(fault, about, closure))
    except Inseparable as reason:
        return _composed(fault, about, Closure(), imported(fault, about, reason))


def _composed(fault: Fault, about: Any, closure: Closure, setup: Setup) -> str:
    main = _main(fault, about, setup)
    hook = "sys.excepthook = unable"
    if fault.kind in data.DIED:
        hook += '\nif __name__ == "__main__":\n    watched()'
    calls = data.calls(fault)
    closure.use(COPIED, f"Op\n{calls}\n{main}")
    late = [*chain.from_iterable(closure.parts().values()), *setup.statements]
    opening = Closure()
    opening.use(COPIED, hook)
    (early,) = opening.parts().values()
    operator = data.operator(fault, whole=setup.whole or "attributes" in closure.attributes)
    numbers = data.infinite(f"{operator}\n{calls}")
    every = (*numbers, *early, *late, "import sys")
    library = {text for text in every if _library(text)}
    packages = _packages(setup, late, about)
    within = re.findall(r"(?m)^ +(?:import|from) (\w+)", "\n".join(late))
    folder = folder_of([*packages, *within], about)
    needs = setup.needs or _needs(packages, folder)
    body = [
        f"{head(about.executable)}\n{docstring(fault.message, about, needs)}",
        "from __future__ import annotations",
        "\n".join(sorted(library, key=lambda t: (t.startswith("from"), t))),
        *(text for text in early if not _library(text)),
        hook,
        searched(folder),
        *dict.fromkeys(t for t in ("import numpy as np", *late) if not _library(t)),
        operator,
        calls,
        main,
        'if __name__ == "__main__":\n    main()',
    ]
    return _spaced(body)


def _packages(setup: Setup, statements: Iterable[str], about: Any) -> list[str]:
    """What it imports besides NumPy and Python's library: the framework first."""
    imported = {m[1] for t in statements if (m := re.match(r"(?:import|from) (\w+)", t))}
    others = {*imported, *setup.modules} - sys.stdlib_module_names - {"d5test"}
    packages = dict.fromkeys([about.framework, *sorted(others)])
    return [name for name in packages if name != "numpy"]


def _needs(packages: list[str], folder: Path | None) -> str:
    """What has to be installed, and where it looks for modules beside the backend's file."""
    where = f"; looks in {folder} too" if folder else "" if packages[1:] else " alone"
    return f"Needs {' and '.join(filter(None, (', '.join(packages), 'NumPy')))}{where}."


def _main(fault: Fault, about: Any, setup: Setup) -> str:
    evidence, claim = fault.evidence, data.claim(fault)
    asked = asked_of(evidence)
    most = about.row_of(fault.case).outputs
    made = RUNS[asked]
    if any(feed.op for feed in evidence.feeds):
        made = f"of_each(lambda function: {made}, function_of, OP)"
    run = RUN.format(
        run=made,
        place="rewritten" if evidence.reuse else "anew",
        most="" if most is None else f", most={most}",
    )
    wrong = CLAIMS[claim].format(run=run)
    who = f'f"{about.framework} {{backend.version}}"'
    lines = [*setup.preparation, f"conclude({wrong}, {who})"]
    return "def main():\n" + "\n".join(f"    {line}" for line in lines)


def asked_of(evidence: Evidence) -> str:
    """The method of the backend by which its calls are differentiated; empty: by none."""
    feeds = evidence.feeds
    pulled = any(feed.grads is not None for feed in feeds)
    if any(feed.tangents is not None for feed in feeds):
        return "hvp" if pulled else "jvp"
    if any(feed.again for feed in feeds):
        return "vjp_again"
    return "vjp" if pulled else ""


def _library(text: str) -> bool:
    """Whether it is an import of Python's own library."""
    match = re.match(r"(?:import|from) (\w+)", text)
    return match is not None and match[1] in sys.stdlib_module_names


def _spaced(blocks: list[str]) -> str:
    """Two empty lines around definitions, one elsewhere, none between imports."""
    text = blocks[0]
    for pair in pairwise(filter(None, blocks)):
        if all(re.match(r"(import|from) (?!__future__)", block) for block in pair):
            gap = "\n"
        elif any(re.match(r"def |class |@|if __name__", block) for block in pair):
            gap = "\n\n\n"
        else:
            gap = "\n\n"
        text += gap + pair[1]
    return text + "\n"


@dataclass(frozen=True)
class Setup:
    """What is called, and how it is made.

    statements   what stands before the data
    preparation  lines that define `backend` and `function`
    needs        a sentence on what the file needs, where it is more than what it imports
    modules      what it imports, besides what the statements do
    whole        whether rows are given all attributes in a dictionary besides
    """

    statements: tuple[str, ...]
    preparation: tuple[str, ...]
    needs: str = ""
    modules: tuple[str, ...] = ()
    whole: bool = False


def taken_apart(fault: Fault, about: Any, closure: Closure) -> Setup:
    """The row's own function and the backend's methods, from their source.

    A source that is compiled and a user's own rule cannot be: their backends are imported. Raises
    `Inseparable` where others cannot be taken out of it.
    """
    op, target = fault.case.op, registry.resolve(about.name).target
    if op.name in about.sources:
        path = str(Path(about.sources[op.name]).absolute())
        return _imported(
            fault,
            ("from d5test.native.bridges import with_native",),
            (f"backend = with_native({target!r}, {path!r})({about.device!r})",),
            f"Needs d5test, a compiler and {path}.",
        )
    rules = environment([op.rule]) if isinstance(op, Step) else {}
    if rules:
        imports = (
            "import os",
            "from d5test.backends.updater import with_own_rules",
            "from d5test.worker.worker import load",
        )
        lines = [f"os.environ[{name!r}] = {value!r}" for name, value in rules.items()]
        lines.append(f"backend = with_own_rules(load({target!r})({about.device!r}))")
        needs = f"Needs d5test, {about.framework} and {', '.join(rules.values())}."
        return _imported(fault, imports, tuple(lines), needs)
    if about.implementation:
        return _session(fault, about, closure)
    return _row(fault, about, closure)


def imported(fault: Fault, about: Any, reason: Exception) -> Setup:
    """The backend, imported as d5test itself imports it."""
    target = registry.resolve(about.name).target
    return _imported(
        fault,
        ("from d5test.worker.worker import load",),
        (f"backend = load({target!r})({about.device!r})",),
        f"Needs d5test besides {about.framework}, for the backend is imported: {reason}.",
        () if ".py:" in target else (registry.package(target),),
    )


def _imported(
    fault: Fault,
    imports: tuple[str, ...],
    lines: tuple[str, ...],
    needs: str,
    modules: tuple[str, ...] = (),
) -> Setup:
    """A backend that these lines make, and its row as it stands there."""
    form = f", {fault.case.form!r}" if fault.case.form else ""
    row = (
        f"row = backend.row_for(OP.name{form})",
        *_function("row.call(OP, *inputs)", fault),
    )
    ours = "\n".join(f"    {line}" for line in imports if line.startswith("from d5test."))
    others = (line for line in imports if not line.startswith("from d5test."))
    statements = (*others, OF_D5TEST.format(imports=ours))
    needs += " `d5test repro THIS_FILE` brings d5test."
    return Setup(statements, (*lines, *row), needs, modules, whole=True)


def _row(fault: Fault, about: Any, closure: Closure) -> Setup:
    where, _, name = registry.resolve(about.name).target.rpartition(":")
    path = Path(where) if where.endswith(".py") else None
    try:
        module = closure.module(path.stem if path else where, path)
    except (OSError, SyntaxError) as error:
        raise Inseparable(f"{where} cannot be read: {error}") from None
    if closure.resolved(module, name) is None:
        raise Inseparable(f"{where} does not define {name} by a class statement")
    row = about.row_of(fault.case)
    if not row.call:
        what = f"the row of {fault.case.form or fault.case.op.name}"
        raise Inseparable(f"{what} has something of which there is no source text")
    if taken := RESERVED & {function for _, _, function in row.functions}:
        raise Inseparable(f"the row uses a name of the reproducer's own, {min(taken)}")
    evidence = fault.evidence
    closure.attributes |= {
        *OWED,
        "compile",
        *((asked,) if (asked := asked_of(evidence)) else ()),
        *(("refill", "mutable") if evidence.reuse else ()),
        *(("compilations", "reset") if fault.kind == "not compiled" else ()),
    }
    closure.use(module.name, name)
    for file, home, text in (*row.functions, *row.made):
        known = path.stem if path is not None and Path(file) == path else home
        closure.module(known, Path(file))
        closure.use(known, text)
    imports = ["from functools import partial"] if "partial(" in row.call else []
    imports += [f"import {module}" for module in row.modules]
    return Setup(
        (*imports, *(text for _, _, text in row.made)),
        (
            f"backend = {name}({about.device!r})",
            *_function(row.call, fault),
        ),
    )


def _function(call: str, fault: Fault) -> tuple[str]:
    """The line that makes the function of the inputs, or of an operator that function."""
    compiled = f"backend.compile(lambda *inputs: {call})"
    if any(feed.op for feed in fault.evidence.feeds):
        return (f"function_of = lambda OP: {compiled}",)
    return (f"function = {compiled}",)


def _session(fault: Fault, about: Any, closure: Closure) -> Setup:
    """A model of the one operator, and the runtime alone.

    Raises `Inseparable` where the runtime stands in the backend's own file.
    """
    session, modules = "Session(MODEL)", ["onnxruntime"]
    if about.framework != "onnxruntime":
        runtime = about.implementation.partition(":")[0].partition(".")[0]
        place = registry.resolve(about.name).target.rpartition(":")[0]
        if runtime in (place.partition(".")[0], Path(place).stem):
            raise Inseparable(f"its file has the runtime {about.implementation}, too")
        session = f"Prepared(MODEL, {about.implementation!r}, {about.framework!r})"
        modules = ["onnx", runtime]
    closure.attributes |= {*OWED, *(("refill", "mutable") if fault.evidence.reuse else ())}
    closure.use(COPIED, session)
    model = f"MODEL = {data.compressed(_model(fault, about.opset))}"
    preparation = (f"backend = {session}", "function = backend.__call__")
    return Setup((model,), preparation, modules=tuple(modules))


def _model(fault: Fault, opset: int) -> bytes:
    """The serialized model of the operator on its first inputs, in the backend's operator set."""
    from d5test.backends.onnx import attributes_of, build_model

    op, inputs = fault.case.op, fault.evidence.feeds[0].inputs
    model, _ = build_model(op.name, attributes_of(op.name, op, opset), inputs, opset)
    content: bytes = model.SerializeToString()
    return content
