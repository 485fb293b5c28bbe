"""A page verified: every verdict computed again from the data that it carries.

Requirements: nothing of the page is run; what cannot be read is an `Unreadable` of one line. That
the data are those that were measured only the files can tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from d5test import __version__
from d5test.compare.numbers import Unreadable
from d5test.compare.words import plain
from d5test.report.embedded import DAMAGED, report_of, unpack
from d5test.report.page import page, shown

DATA = re.compile(r'<script id="data" type="application/gzip">([A-Za-z0-9+/=]+)</script>')
LARGEST = 1 << 26
"""Bytes of a page that is read; a page of 10,000 benchmarks has a quarter of it."""


@dataclass(frozen=True)
class Verified:
    """`count` verdicts computed again; `differences` in words, none if all is as it is shown.

    written_by: another version of d5test that wrote the page, so that its text was not compared
    """

    count: int
    differences: tuple[str, ...]
    written_by: str = ""


def content_of(path: Path) -> str:
    """The text of a page's file."""
    if not path.is_file():
        raise Unreadable("there is no such file" if not path.exists() else "is no regular file")
    if path.stat().st_size > LARGEST:
        raise Unreadable(f"is larger than {LARGEST >> 20} MiB")
    try:
        # bytes, so that no line's end is mended
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise Unreadable("is no page of d5test: it is not UTF-8") from None


def verify(text: str) -> Verified:
    """Verify a page."""
    found = DATA.findall(text)
    if len(found) != 1:
        raise Unreadable("is no page of d5test: it does not carry one block of data")
    data = unpack(found[0])
    # Another version words its page in its own way; its verdicts are compared all the same.
    alike = data.get("d5test") == __version__
    try:
        report = report_of(data)
        again = shown(report)
        differences = [*_verdicts(data.get("shown"), again)]
        if not differences and alike and page(report, found[0]) != text:
            differences.append("the page is not the one that its data give: it was changed")
    except Unreadable:
        raise
    except DAMAGED as error:
        raise Unreadable("its data are damaged") from error
    written_by = "" if alike else plain(str(data.get("d5test")))
    return Verified(len(again["rows"]), tuple(differences), written_by)


def _verdicts(given: Any, again: Mapping[str, Any]) -> Iterator[str]:
    before, after = _by_name(given), _by_name(again)
    headline = str(given["headline"]), again["headline"]
    if headline[0] != headline[1]:
        yield f"it says {plain(headline[0])!r}, its data give {plain(headline[1])!r}"
    for what in dict.fromkeys((*before, *after)):
        told, computed = before.get(what, "nothing"), after.get(what, "nothing")
        if told != computed:
            name, metric = what
            yield f"{metric} of {plain(name)}: it says {plain(told)}, its data give {computed}"


def _by_name(given: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Verdicts, by benchmark and metric."""
    names = given["benchmarks"]
    return {
        (str(names[row["benchmark"]][1]), str(row["metric"])): str(row["verdict"])
        for row in given["rows"]
    }
