"""One benchmark of a file: its name, what it is, and the samples of its metrics.

Requirements: whatever stands in the file, a mistake in what is used is an `Unreadable` of one
line; what is not used is not looked at. A number that nothing can have measured is a mistake.
Files of projects without d5test have a time and a name.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from d5test.case import FLOATS
from d5test.compare.condensed import Rounds, rounds_of, unpacked
from d5test.compare.numbers import (
    LARGEST,
    LONG,
    Unreadable,
    count,
    finite,
    lookup,
    mapping,
    named,
    number,
    positive,
    quoted,
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
COUNTS: Mapping[Metric, tuple[int, int]] = {
    RIGHT: (0, 1),
    ARITHMETIC: (0, len(CLASSES) - 1),
    MEMORY: (0, 2**63),
    RESIDENT: (1, 2**63),
    MESSAGES: (0, 2**63),
    TRAFFIC: (0, 2**63),
}
"""What metrics that are counted can be, both ends included."""
FASTEST, SLOWEST = 1e-9, 1e7
"""Seconds of one call: a nanosecond, the tick of clocks, to four months."""
KERNELS = 64
"""Names of kernels that are read of a benchmark."""
CASE = ("operator", "attributes", "shapes", "dtype", "direction", "cold", "corpus.data")
IDENTITY = (
    *(f"{KEY}.{name}" for name in CASE),
    *(f"communication.{name}" for name in ("ranks", "contribution_bytes")),
    *(f"scaling.{name}" for name in ("optimizer", "mode", "ranks", "samples", "network")),
)
"""What makes a benchmark the one that it is, whatever its name."""
Fact = str | float | bool
OF = " of "  # between a hash and a backend
FACTS = {
    KEY: (
        "problem", "source", "dtype", "direction", "multiplications", "backend.name", "median",
        "median_interval_95.0", "flop_per_second",
    ),
    "scaling": (
        "optimizer", "mode", "ranks", "samples", "network", "backend.name", "median",
        "median_interval_95.0", "median_interval_95.1", "samples_per_second", "load_imbalance",
        "base.samples_per_second",
    ),
    "communication": ("algorithm", "ranks", "contribution_bytes", "imbalance", "own_seconds"),
}  # fmt: skip
"""What a report asks for, by where it stands in the objects of `extra_info`."""
AGREE = 10
"""Times by the pace and by the clock are of the same calls: they differ by a smaller factor."""


@dataclass(frozen=True)
class Paced:
    """Times of a call by run, as multiples of a `work`, whose seconds were `paces`."""

    work: str
    paces: Sequence[float]
    times: Sequence[float]


@dataclass(frozen=True)
class Detail:
    """What a report lists and draws of one benchmark in one run; nothing is decided upon it.

    about    facts by their path in `extra_info`: those of `FACTS` that are there and are short
             texts, finite numbers, true or false
    count    the number of rounds
    rounds   wall seconds of some of them, in order, evenly spaced
    """

    about: Mapping[str, Fact] = field(default_factory=dict)
    count: int = 0
    rounds: Rounds = field(default_factory=lambda: rounds_of([]), compare=False)

    def positive(self, path: str) -> float | None:
        """The number above zero at a path; None where there is none."""
        fact = self.about.get(path)
        return float(fact) if isinstance(fact, int | float) and fact > 0 else None


@dataclass(frozen=True)
class Entry:
    """A benchmark in one run.

    name      its full name, by which it is found in other runs
    identity  a hash of operator, attributes, shapes, dtype, direction, problem; "" if unknown;
              behind it the backend if it is a file's, since the file may have another name
    operator  ONNX's name; "" if it has none
    right     whether the timed outputs were right: otherwise its times mean nothing
    samples   by the name of the metric; of noisy ones one value a run: the best of its rounds
    paced     its time against a work that is always the same, if that was looked at
    kernels   what ran in a call, in the framework's own names; empty if it did not tell
    detail    for a report; empty where the file was read to be compared alone
    """

    name: str
    identity: str
    operator: str
    right: bool
    samples: Mapping[str, Sample]
    paced: Paced | None = None
    kernels: tuple[str, ...] = ()
    detail: Detail = field(default=Detail(), compare=False)

    @property
    def backend_file(self) -> str:
        """The backend, if it is a file's, as `./mine.py:Mine`; else empty."""
        return self.identity.partition(OF)[2]


def entry_of(benchmark: Any) -> Entry:
    """An entry of the list `benchmarks`."""
    if not isinstance(benchmark, dict):
        raise Unreadable(f"an entry of its benchmarks is {quoted(benchmark)}, not an object")
    name = benchmark.get("fullname") or benchmark.get("name")
    if not isinstance(name, str):
        raise Unreadable(f"a benchmark's fullname is {quoted(name)}, not text")
    try:
        return _entry(name, benchmark)
    except Unreadable as error:
        raise Unreadable(f"benchmark {named(name)}: {error}") from None


def _entry(name: str, benchmark: Mapping[str, Any]) -> Entry:
    extra = mapping(benchmark.get("extra_info") or {}, "extra_info")
    for key in (KEY, "scaling"):
        schema = lookup(extra, f"{key}.schema")
        if key in extra and schema != SCHEMA:
            raise Unreadable(f"{key} has schema {quoted(schema)}; this d5test reads {SCHEMA}")
    for path in (f"{KEY}.judgement", f"{KEY}.memory", f"{KEY}.backend"):
        mapping(lookup(extra, path) or {}, path)
    measured = [*_time(benchmark, extra), *_fields(extra), *_strangers(extra)]
    samples = {sample.metric.name: sample for sample in measured}
    if len(samples) < len(measured):
        raise Unreadable("a metric is there twice")
    operator = str(lookup(extra, f"{KEY}.operator") or "")
    right = judged_right(samples)
    paced = paced_of(lookup(extra, f"{KEY}.paced"), samples.get(TIME.name))
    _check_rounds(extra)
    kernels = kernels_of(lookup(extra, f"{KEY}.kernels"))
    return Entry(name, identity(extra), operator, right, samples, paced, kernels)


def kernels_of(recorded: Any) -> tuple[str, ...]:
    """The names of kernels: the first of them, cut where they are long."""
    if recorded is None:
        return ()
    if not isinstance(recorded, list):
        raise Unreadable(f"{KEY}.kernels is {quoted(recorded)}, not a list")
    for name in recorded:
        if not isinstance(name, str):
            raise Unreadable(f"a name of {KEY}.kernels is {quoted(name)}, not text")
    return tuple(dict.fromkeys(name[:LONG] for name in recorded[:KERNELS]))


def judged_right(samples: Mapping[str, Sample]) -> bool:
    """Whether nothing says that the outputs were wrong. Raises `Unreadable` if the error does."""
    if RIGHT.name not in samples:
        return True
    right = min(samples[RIGHT.name].values) == 1
    ratio = max(samples[RATIO.name].values) if RATIO.name in samples else 0.0
    if right and ratio > 1:
        raise Unreadable(f"it is called right with an error of {ratio:g} bars")
    return right


def identity(extra: Mapping[str, Any]) -> str:
    """A hash of what the benchmark is. A problem's name counts only where no operator says it."""
    parts = {path: lookup(extra, path) for path in IDENTITY}
    if not parts[f"{KEY}.operator"]:
        parts["problem"] = lookup(extra, f"{KEY}.problem")
    if all(part is None for part in parts.values()):
        return ""
    name = str(lookup(extra, f"{KEY}.backend.name"))
    backend = name.partition("@")[0]  # NAME@PYTHON: the same in two versions
    of_file = f"{OF}{backend}" if ":" in backend else ""
    text = json.dumps({**parts, "backend": "" if of_file else backend}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16] + of_file


def value_of(metric: Metric, value: Any, what: str) -> float:
    """A value that the metric can have, or an `Unreadable`."""
    kind = replace(metric, tolerance=0.0)
    if kind == RATIO:  # a wrong result may be off by any number of bars
        return within(number(value, what, inf), what, 0, inf)
    checked = positive(value, what) if metric.gate == "noise" else number(value, what)
    if kind in COUNTS:
        return count(value, what, *COUNTS[kind])
    if kind == SHARE:
        return within(checked, what, 0, 1)
    if kind == TIME and not FASTEST <= checked <= SLOWEST:
        raise Unreadable(
            f"{what} is {checked:g} s; no clock gives that of a call ({FASTEST:g} to "
            f"{SLOWEST:g} s)"
        )
    return checked


def _time(benchmark: Mapping[str, Any], extra: Mapping[str, Any]) -> Iterator[Sample]:
    """The time; a case of the corpus has none: the statistics are those of judging it."""
    if lookup(extra, f"{KEY}.corpus") is not None:
        return
    stats = mapping(benchmark.get("stats"), "stats")
    least = value_of(TIME, stats.get("min"), "stats.min")
    announced = count(stats.get("rounds"), "stats.rounds", 1)
    data = stats.get("data")
    if isinstance(data, list):  # not dropped while it was read: it holds what is no number
        data = len([value_of(TIME, value, "a round of stats.data") for value in data])
    if isinstance(data, dict) and "some" in data:  # some of the rounds were kept
        data = data.get("count")
    if data is not None and data != announced:
        raise Unreadable(f"announces {announced:g} rounds and has {quoted(data)}")
    total = stats.get("total")
    if data is None and total is not None and announced * least > 2 * number(total, "stats.total"):
        raise Unreadable(f"announces {announced:g} rounds, more than fit into its total time")
    yield Sample(TIME, (least, *_controls(extra, "control", TIME, "a control time")))


def _controls(extra: Mapping[str, Any], name: str, metric: Metric, what: str) -> Iterator[float]:
    """The values of further runs of the same version."""
    controls = lookup(extra, f"{KEY}.{name}") or []
    if not isinstance(controls, list):
        raise Unreadable(f"{name} is {quoted(controls)}, not a list")
    return (value_of(metric, value, what) for value in controls)


def paced_of(recorded: Any, clock: Sample | None) -> Paced | None:
    """What was timed against a work that is always the same; None where nothing was.

    `clock`: the times of the same calls in seconds, with which it has to agree.
    """
    if recorded is None:
        return None
    fields = mapping(recorded, f"{KEY}.paced")
    work, paces, times = (fields.get(name) for name in ("work", "paces", "times"))
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


def _check_rounds(extra: Mapping[str, Any]) -> None:
    """Calls a round, and rounds that others disturbed: of all rounds at most."""
    loops, preempted, rounds = (
        lookup(extra, f"{KEY}.{name}") for name in ("loops", "preempted_rounds", "seconds")
    )
    if loops is not None:
        count(loops, f"{KEY}.loops", 1)
    if preempted is not None:
        most = count(rounds, f"{KEY}.seconds") if isinstance(rounds, int) else 2**63
        count(preempted, f"{KEY}.preempted_rounds", 0, most)


def _fields(extra: Mapping[str, Any]) -> Iterator[Sample]:
    for path, metric in FIELDS:
        value = lookup(extra, path)
        if value is None or value == "":
            continue
        controls: Iterator[float] = iter(())
        if metric is ARITHMETIC:
            if value not in CLASSES:
                raise Unreadable(f"{path} is {quoted(value)}, not one of {', '.join(CLASSES)}")
            value = CLASSES.index(value)
        elif metric is RIGHT:
            if not isinstance(value, bool):
                raise Unreadable(f"{path} is {quoted(value)}, not true or false")
            value = int(value)
        elif metric is RATIO:
            metric = replace(metric, tolerance=_resolution(extra))
        elif metric is RESIDENT:
            controls = _controls(extra, "control_resident", RESIDENT, "a control's memory")
        yield Sample(metric, (value_of(metric, value, path), *controls))


def _resolution(extra: Mapping[str, Any]) -> float:
    """Up to which a ratio is known: at most what its dtype allows, or it would hide errors."""
    path, dtype = f"{KEY}.ratio_resolution", lookup(extra, f"{KEY}.dtype")
    most = ratio_resolution(dtype) if dtype in FLOATS else 1.0
    return within(number(lookup(extra, path) or 0, path), path, 0, most)


def _strangers(extra: Mapping[str, Any]) -> Iterator[Sample]:
    """The metrics of a project's own."""
    rows = extra.get(METRICS)
    for row in rows if isinstance(rows, list) else ():  # else a project's own field of that name
        if isinstance(row, dict) and "gate" in row:
            yield _stranger(row)


def _stranger(row: Mapping[str, Any]) -> Sample:
    name, unit = row.get("name"), row.get("unit")
    if not isinstance(name, str) or not isinstance(unit, str):
        raise Unreadable(f"a metric's name or unit is no text: {quoted(name)}, {quoted(unit)}")
    what = f"tolerance of {quoted(name)}"
    tolerance = within(number(row.get("tolerance", 0), what), what, 0, LARGEST)
    try:
        metric = Metric(name, unit, str(row.get("better")), str(row["gate"]), tolerance)
    except ValueError as error:
        raise Unreadable(quoted(str(error))) from None
    values = row.get("values")
    if not isinstance(values, list) or not values:
        raise Unreadable(f"metric {quoted(name)} has no values")
    checked = tuple(value_of(metric, value, f"a value of {quoted(name)}") for value in values)
    if metric.gate != "noise":
        return Sample(metric, checked)
    # Disturbances make a value worse, never better: the best one was the least disturbed.
    return Sample(metric, (min(checked) if metric.better == "lower" else max(checked),))


def detail_of(benchmark: Mapping[str, Any]) -> Detail:
    """Of an entry of the list `benchmarks`, of which `entry_of` has read what is compared."""
    extra = benchmark.get("extra_info") or {}
    about = {
        f"{key}.{path}": fact
        for key, paths in FACTS.items()
        if key in extra
        for path in paths
        if (fact := fact_of(lookup(extra[key], path))) is not None
    }
    data = benchmark["stats"].get("data")
    if not isinstance(data, dict):
        return Detail(about)
    try:
        return Detail(about, int(data["count"]), unpacked(data["some"]))
    except (KeyError, TypeError, ValueError):
        raise Unreadable("its rounds are damaged") from None


def fact_of(value: Any) -> Fact | None:
    """A text, cut where it is long, or a finite number, or true or false; else None."""
    if isinstance(value, str):
        return value[:LONG]
    return value if isinstance(value, int | float) and finite(value) else None
