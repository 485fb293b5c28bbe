"""What is wrong with one call, as a file that a maintainer can paste into an issue.

It returns a wrong value, it raises, it returns where it should raise, it ends its process, or it
never returns.

Requirements: about 40 lines, one of them for each tensor, with nothing of d5test or a backend in
them: the call as the framework's users write it, by the backend's `Template`, on the tensors that
it was given. What cannot be said so raises `Inseparable`.
"""

import re
import textwrap
from typing import Any

import numpy as np

from d5test.backends.base import Template
from d5test.case import Array
from d5test.numerics.bounds import Bound
from d5test.outcome.fault import Evidence, Fault
from d5test.reproducer import data
from d5test.reproducer.closure import Inseparable
from d5test.reproducer.copied import LARGEST, SECONDS
from d5test.reproducer.mark import docstring, head
from d5test.reproducer.trial import folder_of, searched

LARGE = 1000
"""Elements of a tensor that are no longer readable on one line."""
EXACT = 2.0**53
"""Below this float64 has all integers."""
SHORT = ("got", "want", "raised", "how", "misfit", "case")
"""The details of a fault whose first lines its file repeats."""
TEXT = """\
{head}
{docstring}
import os
import sys

unable = "cannot be tried: {{0.__name__}}: {{1}}"
sys.excepthook = lambda *error: print(unable.format(*error), flush=True) or os._exit(2)
{watched}{imports}

{tensors}
{tried}version = getattr(sys.modules["{framework}"], "__version__", "of unknown version")
print(f"still there: {{wrong}}" if wrong else "gone", f"({framework} {{version}})")
sys.exit(1 if wrong else 0)
"""
VALUES = """\
{call}
WANT = [{wants}]  # dtype, value, and how far from it is right
wrong = "" if len(results) == len(WANT) else f"{{len(results)}} results, want {{len(WANT)}}"
for k, (y, (dtypes, want, bar)) in enumerate(zip(results, WANT)):
    dtype, got = {dtype}, {array}
    if got.shape != want.shape or dtype not in dtypes.split(" or "):
        wrong += f"result {{k}} is {{dtype}} {{got.shape}}, want {{dtypes}} {{want.shape}}; "
        continue
    right = {right}
    for i in np.argwhere(~right & np.isfinite(bar))[:1]:
        found = [float(each[tuple(i)]) for each in (got, want, bar)]
        wrong += "result {{}} at {{}}: {{}}, want {{}}, give or take {{}}; ".format(k, i, *found)
"""
RIGHT = {
    "within": "np.isclose(got, want, 0, bar, equal_nan=True)",
    "special": "np.isclose(got, want, 0, bar, equal_nan=True)",
    "signed": "(got != 0) | (want != 0) | (np.signbit(got) == np.signbit(want))",
}
"""By claims on values, which elements are right."""
TRIED = """\
try:
{call}
    read = [{array} for y in results if y is not None]  # some frameworks compute only now
    raised = ""
except Exception as error:
    raised = f"raises {{type(error).__name__}}: {{error}}"
wrong = {wrong}
"""
WATCHED = """\
import subprocess

if sys.argv[1:] != ["alone"]:  # the call ends its process, or never returns: another one makes it
    try:
        ended = subprocess.run([sys.executable, __file__, "alone"], timeout={seconds}).returncode
        how = f"the process died with status {{ended}}"
    except subprocess.TimeoutExpired:
        ended, how = -1, "no answer within {seconds} s"
    if ended not in {returned}:
        print(f"still there: {{how}}")
    sys.exit(ended if ended in (0, 2) else 1)
"""
DYING = """\
{call}
read = [{array} for y in results if y is not None]  # some frameworks compute only now
wrong = ""
"""
ACCEPTED = '"" if raised else "accepted"'


def source(fault: Fault, about: Any) -> str:
    """The text of the file. Raises `Inseparable`."""
    evidence, calls = fault.evidence, fault.calls
    template: Template | None = about.template
    if template is None or not (calls.source and calls.outputs) or about.device != "cpu":
        raise Inseparable("the call has no source text")
    tensors = [f"x{i} = {tensor(x, template)}" for i, (x, _) in enumerate(calls.tensors)]
    if not calls.fatal:  # else nothing comes after the call, whatever the claim
        tensors += further(evidence, template)
    statements = tried(fault, template)
    text = "\n".join([*tensors, statements])
    details = (
        "  {:<6}  {}".format(name, *fault.details[name].splitlines()[:1])
        for name in SHORT
        if fault.details.get(name)
    )
    lines = [fault.headline, "", *details]
    folder = folder_of([about.framework], about)
    needs = f"Needs {about.framework} and NumPy; looks in {folder} too." if folder else ""
    return TEXT.format(
        head=head(about.executable),
        docstring=docstring("\n".join(lines), about, needs),
        watched=watched(fault),
        imports="\n".join(
            filter(None, [*data.infinite(text), searched(folder), *imports(fault, template)])
        ),
        tensors="\n".join(tensors),
        tried=statements,
        framework=about.framework,
    )


def watched(fault: Fault) -> str:
    """Statements by which another process makes a call that ends its process, or never returns;
    empty: it does neither.

    That one ends by itself with status 1 only where the call should raise, and returns.
    """
    if fault.kind not in data.DIED:
        return ""
    returned = (0, 1, 2) if data.claim(fault) == "raises" else (0, 2)
    return WATCHED.format(returned=returned, seconds=SECONDS)


def further(evidence: Evidence, template: Template) -> list[str]:
    """Statements that make upstream gradients and tangents.

    Raises `Inseparable` where the claim is of more than one call on plain tensors.
    """
    if len(evidence.feeds) != 1:
        raise Inseparable("the claim is of more than one call")
    (feed,) = evidence.feeds
    if {*(feed.layouts or ()), feed.grad_layout} != {"contiguous"} or any(
        earlier is not None for earlier in feed.same_as or ()
    ):
        raise Inseparable("tensors are strided, or given twice")
    upstream = [] if feed.grads is None else [f"dy = {tensor(only(feed.grads), template)}"]
    moving = [t for t in feed.tangents or () if t is not None]
    return upstream + [f"t{k} = {tensor(t, template)}" for k, t in enumerate(moving)]


def imports(fault: Fault, template: Template) -> list[str]:
    """The template's statements, and the modules in which the functions of the call are found."""
    modules = (f"import {name}" for name in fault.calls.modules)
    known = template.imports.splitlines()
    return ["import numpy as np", *known, *(line for line in modules if line not in known)]


def tried(fault: Fault, template: Template) -> str:
    """Statements that make the call and set `wrong`, to words or to nothing."""
    text, array = call(fault, template), template.array.format(y="y")
    claim = data.claim(fault)
    if fault.kind in data.DIED and claim == "raises":
        return TRIED.format(call=textwrap.indent(text, "    "), array=array, wrong=ACCEPTED)
    if fault.kind in data.DIED:
        return DYING.format(call=text, array=array)
    if fault.kind in ("exception", "accepted"):
        made = any(place is None for _, place in fault.calls.tensors)
        if not fault.calls.tensors or (made and claim == "raises"):
            raise Inseparable("the call takes other tensors than the row")
        wrong = "raised" if claim == "returns" else ACCEPTED
        return TRIED.format(call=textwrap.indent(text, "    "), array=array, wrong=wrong)
    if claim not in RIGHT:
        raise Inseparable("the claim is of more than what one call returns")
    (expected,) = data.expected(fault)
    wants = ", ".join(want(bound, stashed) for bound, stashed in expected)
    dtype = template.dtype.format(y="y")
    return VALUES.format(call=text, wants=wants, dtype=dtype, array=array, right=RIGHT[claim])


def call(fault: Fault, template: Template) -> str:
    """Statements that set `results`: to outputs, or to derivatives."""
    calls, feed = fault.calls, fault.evidence.feeds[-1]
    grads, tangents = feed.grads, feed.tangents
    text = calls.source
    if template.compiled:
        names = ", ".join(f"x{i}" for i in range(len(calls.tensors)))
        text = f"{template.compiled.format(function=f'lambda {names}: {text}')}({names})"
    if calls.fatal or (grads is None and tangents is None):
        several = "list(y) if isinstance(y, (list, tuple)) else [y]"
        return f"y = {text}\nresults = {several if calls.outputs == 'y' else calls.outputs}"
    places = [place for _, place in calls.tensors]
    wanted = fault.evidence.wanted
    statements = template.gradient
    if tangents is not None:
        statements = template.tangent if grads is None else template.second_gradient
    if not statements or not set(wanted) <= set(places):
        raise Inseparable("the call does not take the very inputs whose gradients are wanted")
    if grads is not None:
        only(grads)
    single = re.fullmatch(r"y|\[y(\[\d+\])\]", calls.outputs)
    if single is None:
        raise Inseparable("the call returns several outputs")
    return statements.format(
        call=text + (single[1] or ""),
        inputs=", ".join(f"x{places.index(i)}" for i in wanted),
        tangents=", ".join(f"t{k}" for k in range(len(wanted))),
    )


def only(values: Any) -> Any:
    """The one that there is. Raises `Inseparable`."""
    if len(values) != 1 or values[0] is None:
        raise Inseparable("gradients flow through several outputs")
    return values[0]


def tensor(array: Array, template: Template) -> str:
    """A tensor by the template, read back to the same bits."""
    floating = array.dtype.kind not in "biu"
    plain = np.where(np.isnan(array), np.nan, array).astype(array.dtype) if floating else array
    if array.size > LARGE or plain.tobytes() != array.tobytes():
        raise Inseparable("a tensor has too many elements, or a NaN with a payload")
    return template.tensor.format(values=data.numbers(array), dtype=array.dtype.name)


def want(bound: Bound | None, stashed: bool) -> str:
    """Dtypes, value and bar.

    Raises `Inseparable` where an infinity or NaN can be right, unless nothing else is.
    """
    if bound is None:
        raise Inseparable("not all results are judged")
    bar = np.broadcast_to(np.asarray(bound.bar, float), bound.value.shape)
    judged = np.isfinite(bar)
    demanded = (bar == 0) & ~np.isfinite(bound.value.astype(float))
    with np.errstate(all="ignore"):
        size = np.abs(bound.value.astype(float)) + bar
    dtypes = data.dtypes(bound, stashed=stashed)
    if not np.all(size[judged & ~demanded] < LARGEST.get(dtypes.partition(" ")[0], np.inf)):
        raise Inseparable("an infinity or a NaN can be right")
    if bar.size > LARGE:
        raise Inseparable("a result has too many elements")
    if bound.storage is None and np.any(np.abs(bound.exact) >= EXACT):
        raise Inseparable("float64 does not tell such integers apart")
    value = np.where(judged, bound.value, 0)
    return f'("{dtypes}", np.array({data.numbers(value)}), np.array({data.numbers(bar)}))'
