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
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from d5test.files import replace
from d5test.outcome.fault import Fault
from d5test.reproducer import data, literal, short
from d5test.reproducer.closure import Closure, standard
from d5test.reproducer.mark import docstring, head
from d5test.reproducer.module import Inseparable
from d5test.reproducer.subject import Subject, imported, taken_apart

OUTSET = "d5test.reproducer.preamble"
COPIED = ("d5test.reproducer.calls", "d5test.reproducer.claims")
DIED = ("crash", "hang")
RUN = "answers(backend, CALLS, {run}, {place}{most})"
CLAIMS: Mapping[str, str] = MappingProxyType(
    {
        "within": "within({run}, EXPECTED)",
        "special": "within({run}, EXPECTED)",
        "shaped": "shaped({run}, CALLS)",
        "signed": "signed({run}, EXPECTED)",
        "computed": "within({run}, EXPECTED, outputs=True)",
        "repeats": "repeated(lambda: {run})",
        "untouched": "untouched({run}, backend, CALLS)",
        "kept": "kept({run}, backend)",
        "slope": "sloping({run}, CALLS, BAR)",
        "returns": "raised(lambda: {run})",
        "raises": "accepted(lambda: {run})",
        "compiles": "uncompiled(backend, lambda: {run})",
    }
)
"""What is asked of the answers to all calls: functions of `claims`."""


def write(fault: Fault, about: Any, folder: Path) -> Path:
    """Write the reproducer of a fault into a folder, and return its path.

    `about` is what the backend says of itself (`d5test.client.messages.BackendInfo`).
    """
    path = Path(folder) / file_name(fault, about)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, source(fault, about).encode(errors="backslashreplace"))
    return path


def write_short(fault: Fault, about: Any, folder: Path) -> Path | None:
    """Write the short form of a reproducer, where there is one."""
    try:
        text = short.source(fault, about)
    except Inseparable:
        return None
    path = Path(folder) / file_name(fault, about)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
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
    closure = Closure(())
    try:
        subject = taken_apart(fault, about, closure)
        return _composed(fault, about, closure, subject)
    except Inseparable as reason:
        closure = Closure(())
        return _composed(fault, about, closure, imported(about, reason))


def _composed(fault: Fault, about: Any, closure: Closure, subject: Subject) -> str:
    main = _main(fault, about, subject)
    hook = "sys.excepthook = unable"
    if fault.kind in DIED:
        hook += '\nif __name__ == "__main__":\n    watched()'
    calls = data.calls(fault)
    closure.use(OUTSET, hook)
    for module in COPIED:
        closure.use(module, f"{calls}\n{main}")
    operator = data.operator(fault, whole=subject.whole)
    parts = closure.parts()
    if "attributes" in closure.attributes:
        operator = data.operator(fault, whole=True)
    own = [*literal.infinite(f"{operator}\n{calls}"), "from types import SimpleNamespace"]
    early = [text for part in parts if part.module == OUTSET for text in part.statements]
    rest = [text for part in parts if part.module != OUTSET for text in part.statements]
    every = (*own, *early, *rest, *subject.statements, "import sys")
    library = {text for text in every if _library(text)}
    used = ("import numpy as np", *rest, *subject.statements)
    body = [
        f"{head(about.executable)}\n{docstring(fault.message, about, subject.needs)}",
        "from __future__ import annotations",
        "\n".join(sorted(library, key=lambda t: (t.startswith("from"), t))),
        *(text for text in early if not _library(text)),
        hook,
        *dict.fromkeys(text for text in used if not _library(text)),
        operator,
        calls,
        main,
        'if __name__ == "__main__":\n    main()',
    ]
    return _spaced(body)


def _main(fault: Fault, about: Any, subject: Subject) -> str:
    evidence = fault.evidence
    claim = evidence.claim
    if fault.kind in (*DIED, "exception"):
        claim = "raises" if claim == "raises" else "returns"
    elif fault.kind == "not compiled":
        claim = "compiles"
    pulled = any(feed.grads is not None for feed in evidence.feeds)
    most = about.rows[fault.case.op.name].outputs
    run = RUN.format(
        run="differentiated(backend, function)" if pulled else "forward(function)",
        place="rewritten" if evidence.reuse else "anew",
        most="" if most is None else f", most={most}",
    )
    wrong = CLAIMS[claim].format(run=run)
    who = f'f"{about.framework} {{backend.version}}"'
    lines = [*subject.preparation, f"wrong = {wrong}", f"conclude(wrong, {who})"]
    return "def main():\n" + "\n".join(f"    {line}" for line in lines)


def _library(text: str) -> bool:
    """Whether it is an import of Python's own library."""
    return text.startswith(("import ", "from ")) and standard(text)


def _spaced(blocks: list[str]) -> str:
    """Two empty lines around definitions, one elsewhere, none between imports."""
    text, before = "", ""
    for block in blocks:
        if not block:
            continue
        if not before:
            gap = ""
        elif _is_import(block) and _is_import(before):
            gap = "\n"
        elif _is_definition(block) or _is_definition(before):
            gap = "\n\n\n"
        else:
            gap = "\n\n"
        text += gap + block
        before = block
    return text + "\n"


def _is_import(block: str) -> bool:
    return block.startswith(("import ", "from ")) and "__future__" not in block


def _is_definition(block: str) -> bool:
    return block.startswith(("def ", "class ", "@", "if __name__"))
