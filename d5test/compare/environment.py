"""Where runs were made: machine, software, threads, load; and where two sides differ in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from d5test.compare.entry import field
from d5test.compare.numbers import finite
from d5test.record import KEY

MACHINE = {
    "node": "machine",
    "system": "system",
    "release": "kernel",
    "python_version": "Python",
    "cpu.brand_raw": "processor",
    "cpu.count": "cores",
}
"""Facts of pytest-benchmark's `machine_info`, by what they are called here."""
COMMIT = {"id": "commit", "branch": "branch", "dirty": "uncommitted changes"}
BACKEND = ("version", "device_name", "mode", "threads", "libraries", "python")
HERE = ("usable_cores", "memory", "threads", "driver")
"""Facts of a record's environment that `machine_info` has not."""
MANY = 4
"""Numbers of a side's runs that are listed; of more, the ends."""
NUMBER = re.compile(r"(?:[0-9.]+ to )?([0-9]{1,9}(?:\.[0-9]{1,9})?)%?")
"""A fact that is a number, or a span; versions and commits are none."""


def facts_of(content: Mapping[str, Any]) -> dict[str, str]:
    """The facts of a file, as text by name. What is missing or no fact is left out."""
    found: dict[str, Any] = {}
    for path, name in MACHINE.items():
        found[name] = field(content.get("machine_info"), path)
    for path, name in COMMIT.items():
        found[name] = field(content.get("commit_info"), path)
    records = list(_records(content))
    for record in records:
        found |= _backend(record.get("backend"))
    for name in HERE:
        found[name.replace("_", " ")] = field(records, f"0.environment.{name}")
    found["load"] = _span([field(r, "environment.load.0") for r in records])
    found["preempted rounds"] = _preempted(records)
    paces = [field(record, "paced.paces") for record in records]
    found["pace (us)"] = _span([1e6 * x for side in paces for x in numbers(side)])
    works = [field(record, "paced.work") for record in records]
    found["pace of"] = " | ".join(dict.fromkeys(str(work) for work in works if work))
    return {name: _text(value) for name, value in found.items() if value not in (None, "", {}, [])}


def differing(
    old: Sequence[Mapping[str, str]], new: Sequence[Mapping[str, str]]
) -> dict[str, tuple[str, str]]:
    """Facts in which the two sides differ: what each side says, of all of its runs."""
    names = dict.fromkeys(name for facts in (*old, *new) for name in facts)
    sides = {name: (_said(old, name), _said(new, name)) for name in names}
    return {name: (a, b) for name, (a, b) in sides.items() if a != b}


def _said(side: Sequence[Mapping[str, str]], name: str) -> str:
    said = {facts.get(name, "-") for facts in side}
    if len(said) <= MANY or not all(map(NUMBER.fullmatch, said)):
        return " | ".join(sorted(said, key=_by_number))
    ends = {end for fact in said for end in fact.split(" to ")}
    return " to ".join(end(ends, key=_by_number) for end in (min, max))


def _by_number(fact: str) -> tuple[float, str]:
    """9% before 10%."""
    number = NUMBER.fullmatch(fact)
    return (float(number[1]) if number else inf, fact)


def _records(content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for benchmark in content["benchmarks"]:
        record = field(benchmark, f"extra_info.{KEY}")
        if isinstance(record, dict):
            yield record


def _backend(backend: Any) -> dict[str, Any]:
    if not isinstance(backend, dict):
        return {}
    name = str(backend.get("name")).partition("@")[0]
    found = {f"{name}: {fact.replace('_', ' ')}": backend.get(fact) for fact in BACKEND}
    packages = backend.get("packages")
    if isinstance(packages, dict):
        found |= {f"{name}: package {package}": version for package, version in packages.items()}
    return found


def _preempted(records: Sequence[Mapping[str, Any]]) -> str:
    """The share of rounds that did not have the core for themselves."""
    pairs = [(r.get("preempted_rounds"), r.get("seconds")) for r in records]
    known = [(k, n) for k, n in pairs if isinstance(k, int) and isinstance(n, int) and k <= n]
    total = sum(n for _, n in known)
    return f"{sum(k for k, _ in known) / total:.0%}" if total else ""


def _span(values: Sequence[Any]) -> str:
    found = numbers(values)
    ends = dict.fromkeys(f"{end(found):.1f}" for end in (min, max)) if found else ()
    return " to ".join(ends)


def numbers(values: Any) -> list[float]:
    """Those of a list that are numbers, if it is a list."""
    found = values if isinstance(values, list) else []
    return [value for value in found if isinstance(value, int | float) and finite(value)]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
