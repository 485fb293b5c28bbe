"""Rows of known failures written: as a file that `reading` reads, and as docs/found.md.

Requirements: what stands in the page stands in a row; the same rows make the same page.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from d5test.known.failure import KnownFailure
from d5test.known.finding import Finding
from d5test.known.reading import Shipped

HEAD = """\
# Faults that d5test found

Most are rows of `suites/known`, whose cases run as tests and must still fail; each was checked
against independent computations. The last ones of a framework are those that no case of an
operator shows: of training, of ranks, of memory. A reproducer needs the framework alone: paste
what stands first in its section, then the lines of the fault. Behind a `#` stands what is right;
the block below has what was printed, or raised.

This page is made from the rows: `d5test known --page > docs/found.md`.
"""
JUDGED = "judged by its error model"
REFUSED = "counted as unsupported"
MASKED = "not judged"
NO_CASE = "no case shows it"


def table(row: Mapping[str, Any]) -> str:
    """A `[[known]]` table. A value is a text, a number, a date, or a list or table of such."""
    lines = (f"{name} = {_value(value)}" for name, value in row.items())
    return "\n".join(["[[known]]", *lines, ""])


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(entry) for entry in value if entry is not None)}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_value(v)}' for name, v in value.items())} }}"
    if isinstance(value, str):
        # TOML's basic strings are JSON's, but for one control character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def page(files: Mapping[str, Shipped]) -> str:
    """The page, from what comes with the suites for each framework."""
    return "\n".join([HEAD, *_overview(files), "", *_sections(files)])


def _overview(files: Mapping[str, Shipped]) -> Iterator[str]:
    yield f"| framework | faults | {JUDGED} | {REFUSED} | {MASKED} | {NO_CASE} |"
    yield "|---|---|---|---|---|---|"
    for name, (_, rows, findings) in files.items():
        ways = [treatment(row) for row in rows]
        counts = [ways.count(way) for way in (JUDGED, REFUSED, MASKED)] + [len(findings)]
        yield f"| {name} | {sum(counts)} | {' | '.join(map(str, counts))} |"


def treatment(row: KnownFailure) -> str:
    """What becomes of the cases of a known failure."""
    if row.model is not None:
        return JUDGED
    return REFUSED if row.raises else MASKED


def _sections(files: Mapping[str, Shipped]) -> Iterator[str]:
    for name, (preamble, rows, findings) in files.items():
        yield f"## {name}\n"
        if preamble:
            yield f"```python\n{preamble.strip()}\n```\n"
        for row in rows:
            yield from _fault(row)
        for finding in findings:
            yield from _without_case(finding)


def _fault(row: KnownFailure) -> Iterator[str]:
    yield f"### {', '.join(row.operators)}: {row.reason}\n"
    where = [f"versions {row.versions}" if row.versions else "all versions"]
    where += [f"on {' or '.join(row.backends)}"] if row.backends else []
    where += [f"processors or builds with {' or '.join(row.devices)}"] if row.devices else []
    yield f"* {', '.join(row.dtypes)}; {'; '.join(where)}"
    yield f"* how bad: {row.extent}"
    yield _owner(row)
    yield f"* here: {treatment(row)}, until {row.expires}"
    yield from (f"* {witness}" for witness in row.witnesses)
    yield ""
    if row.reproducer:
        yield from _blocks(row)


def _without_case(finding: Finding) -> Iterator[str]:
    yield f"### {finding.about}: {finding.reason}\n"
    extension = f"; processors with {finding.extension}" if finding.extension else ""
    yield f"* {finding.package} {finding.versions}{extension}"
    yield from [f"* how bad: {finding.extent}"] if finding.extent else []
    yield _owner(finding)
    yield f"* here: {finding.here}"
    if finding.environment:
        pairs = " ".join(f"{name}={value}" for name, value in finding.environment.items())
        yield f"* shown with `{pairs}` in the environment"
    yield ""
    yield from _blocks(finding)


def _owner(fault: KnownFailure | Finding) -> str:
    return f"* where: {f'[{fault.owner}]({fault.link})' if fault.link else fault.owner}"


def _blocks(fault: KnownFailure | Finding) -> Iterator[str]:
    yield f"```python\n{fault.reproducer.strip()}\n```\n"
    yield f"```text\n{fault.prints.strip()}\n```\n"
