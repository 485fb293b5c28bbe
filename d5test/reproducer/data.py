"""What a reproducer embeds: the operator, the inputs of each call, and what is expected."""

from __future__ import annotations

from typing import Any

from d5test.client.messages import plain
from d5test.numerics.bounds import Bound
from d5test.outcome.fault import Fault
from d5test.reproducer import literal

Wanted = list[tuple[Bound | None, bool]]
"""What is expected of each result, and whether a stashed one may stay in float32."""


def operator(fault: Fault, *, whole: bool) -> str:
    """`OP`, as a row sees it; `whole`: with all attributes in a dictionary besides."""
    name, values = plain(fault.case.op)
    given = literal.attributes(values)
    if not whole:
        return f"OP = SimpleNamespace(name={name!r}{', ' if given else ''}{given})"
    return (
        f"ATTRIBUTES = dict({given})\n"
        f"OP = SimpleNamespace(name={name!r}, attributes=ATTRIBUTES, **ATTRIBUTES)"
    )


def calls(fault: Fault) -> str:
    """`CALLS`, and as far as the claim needs them `EXPECTED` and `BAR`."""
    evidence = fault.evidence
    feeds = evidence.feeds
    if len(feeds) > 1 and all(feed is feeds[0] for feed in feeds):
        lines = [f"CALLS = [\n{_call(feeds[0], evidence.wanted)}\n] * {len(feeds)}"]
    else:
        made = "\n".join(_call(feed, evidence.wanted) for feed in feeds)
        lines = [f"CALLS = [\n{made}\n]"]
    if evidence.claim in ("within", "special", "signed", "computed"):
        wants = "\n".join(map(_wants, expected(fault)))
        lines.append(f"EXPECTED = [\n{wants}\n]")
    if evidence.claim == "slope" and fault.judgement is not None:
        lines.append(f"BAR = {fault.judgement.bar!r}")
    return "\n".join(lines)


def _call(feed: Any, wanted: tuple[int, ...]) -> str:
    parts = [_listed("", [literal.tensor(x) for x in feed.inputs])]
    if feed.grads is not None:
        parts.append(_listed("grads=", [literal.tensor(dy) for dy in feed.grads]))
        parts.append(f"wanted={list(wanted)}")
    if feed.layouts is not None and set(feed.layouts) != {"contiguous"}:
        parts.append(f"memory={list(feed.layouts)!r}")
    if feed.same_as is not None and any(earlier is not None for earlier in feed.same_as):
        parts.append(f"same_as={list(feed.same_as)!r}")
    inside = "\n".join(f"        {part}," for part in parts)
    return f"    Call(\n{inside}\n    ),"


def _listed(name: str, entries: list[str]) -> str:
    inside = "\n".join(f"            {entry}," for entry in entries)
    return f"{name}[\n{inside}\n        ]"


def _wants(bounds: Wanted) -> str:
    inside = "\n".join(f"        {literal.want(bound, stashed)}," for bound, stashed in bounds)
    return f"    [\n{inside}\n    ]," if bounds else "    [],"


def expected(fault: Fault) -> list[Wanted]:
    """The bounds of the evidence."""
    pulled = fault.evidence.feeds[-1].grads is not None
    stashed = () if pulled else fault.case.op.stashed_outputs
    return [
        [(bound, k in stashed) for k, bound in enumerate(bounds)]
        for bounds in fault.evidence.expected
    ]
