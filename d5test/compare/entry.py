"""One benchmark of a file: its name, what it is, and the samples of its metrics.

Requirements: whatever stands in the file, a mistake in what is used is an `Unreadable` of one
line; what is not used is not looked at. Files of projects without d5test have a time and a name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from d5test.case import FLOATS
from d5test.compare.numbers import (
    LARGEST,
    SHORT,
    Unreadable,
    count,
    number,
    positive,
    told,
    value_of,
    within,
)
from d5test.metric import (
    ARITHMETIC,
    CLASSES,
    MEMORY,
    MESSAGES,
    RATIO,
    RESIDENT,
    RIGHT,
    SHARE,
    TIME,
    TRAFFIC,
    Metric,
    Sample,
)
from d5test.record import KEY, METRICS, SCHEMA, ratio_resolution

FIELDS: Sequence[tuple[str, Metric]] = (
    (f"{KEY}.judgement.right", RIGHT),
    (f"{KEY}.judgement.ratio", RATIO),
    (f"{KEY}.judgement.share", SHARE),
    (f"{KEY}.judgement.arithmetic", ARITHMETIC),
    (f"{KEY}.memory.device", MEMORY),
    (f"{KEY}.memory.resident", RESIDENT),
    ("communication.messages", MESSAGES),
    ("communication.bytes", TRAFFIC),
    ("scaling.messages_sent", MESSAGES),
    ("scaling.bytes_sent", TRAFFIC),
)
"""Where the metrics stand in `extra_info`."""
CASE = ("operator", "attributes", "shapes", "dtype", "direction", "cold", "corpus.data")
IDENTITY = (
    *(f"{KEY}.{name}" for name in CASE),
    *(f"communication.{name}" for name in ("ranks", "contribution_bytes")),
    *(f"scaling.{name}" for name in ("optimizer", "mode", "ranks", "samples", "network")),
)
"""What makes a benchmark the one that it is, whatever its name."""
OF = " of "  # between a hash and a backend
AGREE = 10
"""Times by the pace and by the clock are of the same calls: they differ by a smaller factor."""
LONG = 160
"""Characters of a benchmark's name that are shown."""


@dataclass(frozen=True)
class Paced:
    """Times of a call by run, as multiples of a `work`, whose seconds were `paces`."""

    work: str
    paces: Sequence[float]
    times: Sequence[float]


@dataclass(frozen=True)
class Entry:
    """A benchmark in one run.

    name      its full name, by which it is found in other runs
    identity  a hash of operator, attributes, shapes, dtype, direction, problem; "" if unknown;
              behind it the backend if it is one's own, since its file may have another name
    operator  ONNX's name; "" if it has none
    right     whether the timed outputs were right: otherwise its times mean nothing
    samples   by the name of the metric; of noisy ones one value a run: the best of its rounds
    paced     its time against a work that is always the same, if that was looked at
    """

    name: str
    identity: str
    operator: str
    right: bool
    samples: Mapping[str, Sample]

    paced: Paced | None = None

    @property
    def own(self) -> str:
        """The backend, if it is one's own, as `./mine.py:Mine`; else empty."""
        return self.identity.partition(OF)[2]


def entry_of(benchmark: Any) -> Entry:
    """An entry of the list `benchmarks`."""
    if not isinstance(benchmark, dict):
        raise Unreadable(f"an entry of its benchmarks is {told(benchmark)}, not an object")
    name = benchmark.get("fullname") or benchmark.get("name")
    if not isinstance(name, str):
        raise Unreadable(f"a benchmark's fullname is {told(name)}, not text")
    try:
        return _entry(name, benchmark)
    except Unreadable as error:
        raise Unreadable(f"benchmark {named(name)}: {error}") from None


def _entry(name: str, benchmark: Mapping[str, Any]) -> Entry:
    extra = _object(benchmark.get("extra_info") or {}, "extra_info")
    _schemas(extra)
    samples = [*_time(benchmark, extra), *_fields(extra), *_strangers(extra)]
    named = {sample.metric.name: sample for sample in samples}
    if len(named) < len(samples):
        raise Unreadable("a metric is there twice")
    operator = str(field(extra, f"{KEY}.operator") or "")
    right = judged_right(named)
    paced = paced_of(field(extra, f"{KEY}.paced"), named.get(TIME.name))
    _counts(extra)
    return Entry(name, identity(extra), operator, right, named, paced)


def judged_right(samples: Mapping[str, Sample]) -> bool:
    """Whether nothing says that the outputs were wrong. Raises `Unreadable` if the error does."""
    right = RIGHT.name not in samples or min(samples[RIGHT.name].values) == 1
    ratio = max(samples[RATIO.name].values) if RATIO.name in samples else 0.0
    if right and RIGHT.name in samples and ratio > 1:
        raise Unreadable(f"it is called right with an error of {ratio:g} bars")
    return right


def identity(extra: Mapping[str, Any]) -> str:
    """A hash of what the benchmark is. A problem's name counts only where no operator says it."""
    parts = {path: field(extra, path) for path in IDENTITY}
    if not parts[f"{KEY}.operator"]:
        parts["problem"] = field(extra, f"{KEY}.problem")
    if all(part is None for part in parts.values()):
        return ""
    name = str(field(extra, f"{KEY}.backend.name"))
    backend = name.partition("@")[0]  # NAME@PYTHON: the same in two versions
    own = f"{OF}{backend}" if ":" in backend else ""
    text = json.dumps({**parts, "backend": "" if own else backend}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16] + own


def field(extra: Any, path: str) -> Any:
    """What stands at a dotted path (a number is a place in a list); None where nothing does."""
    found: Any = extra
    for name in path.split("."):
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            return None
    return found


def named(benchmark: str) -> str:
    """The name of a benchmark in a line, without the path of its file if it is long."""
    path, bracket, inner = benchmark.partition("[")
    test = f"{path.rpartition('::')[2]}{bracket}{inner}"
    return told(benchmark if len(benchmark) < SHORT else test, LONG)


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Unreadable(f"{what} is {told(value)}, not an object")
    return value


def _schemas(extra: Mapping[str, Any]) -> None:
    for key in (KEY, "scaling"):
        found = field(extra, f"{key}.schema")
        if key in extra and found != SCHEMA:
            raise Unreadable(f"{key} has schema {told(found)}; this d5test reads {SCHEMA}")
    for path in (f"{KEY}.judgement", f"{KEY}.memory", f"{KEY}.backend"):
        _object(field(extra, path) or {}, path)


def _time(benchmark: Mapping[str, Any], extra: Mapping[str, Any]) -> Iterator[Sample]:
    """The time; a case of the corpus has none: the statistics are those of judging it."""
    if field(extra, f"{KEY}.corpus") is not None:
        return
    stats = _object(benchmark.get("stats"), "stats")
    least = value_of(TIME, stats.get("min"), "stats.min")
    announced = count(stats.get("rounds"), "stats.rounds", 1)
    data = stats.get("data")
    if isinstance(data, list):  # not dropped while it was read: it holds what is no number
        values = [value_of(TIME, value, "a round of stats.data") for value in data]
        data = len(values)
    if isinstance(data, dict) and "some" in data:  # some of the rounds were kept
        data = data.get("count")
    if data is not None and data != announced:
        raise Unreadable(f"announces {announced:g} rounds and has {told(data)}")
    total = stats.get("total")
    if data is None and total is not None and announced * least > 2 * number(total, "stats.total"):
        raise Unreadable(f"announces {announced:g} rounds, more than fit into its total time")
    yield Sample(TIME, (least, *_controls(extra, "control", TIME, "a control time")))


def _controls(extra: Mapping[str, Any], name: str, metric: Metric, what: str) -> Iterator[float]:
    """The values of further runs of the same version."""
    found = field(extra, f"{KEY}.{name}") or []
    if not isinstance(found, list):
        raise Unreadable(f"{name} is {told(found)}, not a list")
    return (value_of(metric, value, what) for value in found)


def paced_of(found: Any, clock: Sample | None) -> Paced | None:
    """What was timed against a work that is always the same; None where nothing was.

    `clock`: the times of the same calls in seconds, with which it has to agree.
    """
    if found is None:
        return None
    given = _object(found, f"{KEY}.paced")
    work, paces, times = (given.get(name) for name in ("work", "paces", "times"))
    if not (isinstance(work, str) and isinstance(paces, list) and isinstance(times, list)):
        raise Unreadable(f"{KEY}.paced has no work, paces and times")
    if not 0 < len(paces) == len(times):
        raise Unreadable(f"{KEY}.paced has {len(paces)} paces and {len(times)} times")
    what = f"a value of {KEY}.paced"
    for pace, quotient in zip(paces, times, strict=True):
        seconds = positive(pace, what) * positive(quotient, what)
        value_of(TIME, pace, what)
        value_of(TIME, seconds, f"{what} ({quotient:g} times {pace:g} s)")
        if clock and not min(clock.values) / AGREE < seconds < max(clock.values) * AGREE:
            raise Unreadable(
                f"{what} is {quotient:g} times {pace:g} s: by the clock it was "
                f"{clock.values[0]:g} s"
            )
    return Paced(work, paces, times)


def _counts(extra: Mapping[str, Any]) -> None:
    """Calls a round, and rounds that others disturbed: of all rounds at most."""
    loops, preempted, rounds = (
        field(extra, f"{KEY}.{name}") for name in ("loops", "preempted_rounds", "seconds")
    )
    if loops is not None:
        count(loops, f"{KEY}.loops", 1)
    if preempted is not None:
        most = count(rounds, f"{KEY}.seconds") if isinstance(rounds, int) else 2**63
        count(preempted, f"{KEY}.preempted_rounds", 0, most)


def _fields(extra: Mapping[str, Any]) -> Iterator[Sample]:
    for path, metric in FIELDS:
        value = field(extra, path)
        if value is None or value == "":
            continue
        if metric is ARITHMETIC:
            if value not in CLASSES:
                raise Unreadable(f"{path} is {told(value)}, not one of {', '.join(CLASSES)}")
            value = CLASSES.index(value)
        if metric is RIGHT:
            if not isinstance(value, bool):
                raise Unreadable(f"{path} is {told(value)}, not true or false")
            value = int(value)
        if metric is RATIO:
            metric = replace(metric, tolerance=_resolution(extra))
        more: Iterator[float] = iter(())
        if metric is RESIDENT:
            more = _controls(extra, "control_resident", RESIDENT, "a control's memory")
        yield Sample(metric, (value_of(metric, value, path), *more))


def _resolution(extra: Mapping[str, Any]) -> float:
    """Up to which a ratio is known: at most what its dtype allows, or it would hide errors."""
    what, dtype = f"{KEY}.ratio_resolution", field(extra, f"{KEY}.dtype")
    resolution = number(field(extra, what) or 0, what)
    most = ratio_resolution(dtype) if dtype in FLOATS else 1.0
    return within(resolution, what, 0, most)


def _strangers(extra: Mapping[str, Any]) -> Iterator[Sample]:
    found = extra.get(METRICS) or []
    if not isinstance(found, list):
        return  # a project's own field of that name
    for given in found:
        if not isinstance(given, dict) or "gate" not in given:
            continue
        yield _stranger(given)


def _stranger(given: Mapping[str, Any]) -> Sample:
    name, unit = given.get("name"), given.get("unit")
    if not isinstance(name, str) or not isinstance(unit, str):
        raise Unreadable(f"a metric's name or unit is no text: {told(name)}, {told(unit)}")
    tolerance = within(
        number(given.get("tolerance", 0), f"tolerance of {told(name)}"),
        f"tolerance of {told(name)}",
        0,
        LARGEST,
    )
    try:
        metric = Metric(name, unit, str(given.get("better")), str(given["gate"]), tolerance)
    except ValueError as error:
        raise Unreadable(told(str(error))) from None
    values = given.get("values")
    if not isinstance(values, list) or not values:
        raise Unreadable(f"metric {told(name)} has no values")
    found = [value_of(metric, value, f"a value of {told(name)}") for value in values]
    return Sample(metric, (best(metric, found),) if metric.gate == "noise" else tuple(found))


def best(metric: Metric, values: Sequence[float]) -> float:
    """What the least disturbed of the values was: disturbances make it worse, never better."""
    return min(values) if metric.better == "lower" else max(values)
