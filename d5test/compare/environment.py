"""Where runs were made: machine, software, threads, load; and where two sides differ in it."""

import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from d5test.compare.numbers import finite, lookup
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
    facts = {name: lookup(content, f"machine_info.{path}") for path, name in MACHINE.items()}
    facts |= {name: lookup(content, f"commit_info.{path}") for path, name in COMMIT.items()}
    extras = [lookup(benchmark, f"extra_info.{KEY}") for benchmark in content["benchmarks"]]
    records = [record for record in extras if isinstance(record, dict)]
    for record in records:
        facts |= _backend(record.get("backend"))
    for name in HERE:
        facts[name.replace("_", " ")] = lookup(records, f"0.environment.{name}")
    loads = _numbers([lookup(record, "environment.load.0") for record in records])
    facts["load"] = span(loads, ".1f")
    facts["preempted rounds"] = _preempted(records)
    paces = [pace for record in records for pace in _numbers(lookup(record, "paced.paces"))]
    facts["pace (us)"] = span(_numbers([1e6 * pace for pace in paces]), ".1f")
    works = [lookup(record, "paced.work") for record in records]
    facts["pace of"] = " | ".join(dict.fromkeys(str(work) for work in works if work))
    return {name: _text(fact) for name, fact in facts.items() if fact not in (None, "", {}, [])}


def differing(
    old: Sequence[Mapping[str, str]], new: Sequence[Mapping[str, str]]
) -> dict[str, tuple[str, str]]:
    """Facts in which the two sides differ: what each side says, of all of its runs."""
    before, after = of_runs(old), of_runs(new)
    sides = {name: (before.get(name, "-"), after.get(name, "-")) for name in {**before, **after}}
    return {name: (a, b) for name, (a, b) in sides.items() if a != b}


def of_runs(runs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What several runs say of each fact that any of them has."""
    names = dict.fromkeys(name for facts in runs for name in facts)
    return {name: _joined({facts.get(name, "-") for facts in runs}) for name in names}


def span(values: Sequence[float], spec: str = "") -> str:
    """The smallest to the largest; one number where they look alike, empty where none is."""
    ends = (min(values), max(values)) if values else ()
    return " to ".join(dict.fromkeys(f"{end:{spec}}" for end in ends))


def _joined(facts: set[str]) -> str:
    if len(facts) <= MANY or not all(map(NUMBER.fullmatch, facts)):
        return " | ".join(sorted(facts, key=_by_number))
    ends = {end for fact in facts for end in fact.split(" to ")}
    return " to ".join(end(ends, key=_by_number) for end in (min, max))


def _by_number(fact: str) -> tuple[float, str]:
    """9% before 10%."""
    number = NUMBER.fullmatch(fact)
    return (float(number[1]) if number else inf, fact)


def _backend(backend: Any) -> dict[str, Any]:
    if not isinstance(backend, dict):
        return {}
    name = str(backend.get("name")).partition("@")[0]
    facts = {f"{name}: {fact.replace('_', ' ')}": backend.get(fact) for fact in BACKEND}
    packages = backend.get("packages")
    if isinstance(packages, dict):
        facts |= {f"{name}: package {package}": version for package, version in packages.items()}
    return facts


def _preempted(records: Sequence[Mapping[str, Any]]) -> str:
    """The share of rounds that did not have the core for themselves."""
    pairs = [(r.get("preempted_rounds"), r.get("seconds")) for r in records]
    known = [(k, n) for k, n in pairs if isinstance(k, int) and isinstance(n, int) and k <= n]
    total = sum(n for _, n in known)
    return f"{sum(k for k, _ in known) / total:.0%}" if total else ""


def _numbers(values: Any) -> list[float]:
    """Those of a list that are numbers, if it is a list."""
    values = values if isinstance(values, list) else []
    return [value for value in values if isinstance(value, int | float) and finite(value)]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={item}" for name, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
