"""What was judged and what was not, at the end of a run.

Requirements: computed from reports alone, so that it is the same with and without xdist; the
verdict comes first, then the faults by cause, each with its shortest reproducer; only what matters
stands in the table, the rest is counted; nothing that was skipped goes unsaid, and a run in which
nothing was judged has an exit status of its own.
"""

import io
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

import pytest
from rich.console import Console
from rich.table import Table

from d5test.accuracy import Accuracy, ulps
from d5test.client.client import MOST_MEMORY
from d5test.names import plural, short
from d5test.outcome.tally import OUTCOMES, Cause, Tally, causes, shortened, unaccused
from d5test.plugin.outcomes import ARITHMETICS, UNCONFIRMED, carried, tallies_of
from d5test.plugin.selection import SELECTION, Selection

Measured = TypeVar("Measured")
WORST = 5
CAUSES = 12
"""Causes that are shown."""
NOTHING_JUDGED = 6
"""The exit status of a run in which nothing was judged; pytest's own end at 5."""
LEGEND = {
    "right": "inside of its error bar",
    "fault": "outside of it, or a crash, a hang, a wrong exception",
    "known": "a fault that a row of the known failures lists",
    "inapplicable": "the check does not apply to this case",
    "unsupported": "the backend does not do it",
    "void": (
        "the case cannot tell right from wrong: "
        "its error bar accepts results that are obviously wrong"
    ),
    "untested": "a cell in which too little was judged",
}
LEAST_ACCURATE = 4
ROUNDED = 0.5
"""The error in ULPs of a result that is rounded correctly."""
REASONS, LONGEST = 8, 160
"""Reasons why cases were not judged that are printed, and characters of each."""
CUT = " ... "
WIDTH = 99
"""Columns in which lists are wrapped."""
COLOURS = {"right": "green", "fault": "red", "known": "yellow", "untested": "red"}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> Generator[None, Any, Any]:
    """Say it after pytest's own list of failures, which may be long."""
    result = yield
    tallies = tallies_in(terminalreporter)
    if not tallies:
        ran = any(map(terminalreporter.stats.get, ("passed", "failed", "skipped", "error")))
        none_left = exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not ran
        if none_left and config.stash[SELECTION].backends:
            terminalreporter.write_line(no_tests(config.stash[SELECTION]))
        return result
    terminalreporter.section("d5test", sep="=")
    colours = bool(terminalreporter.isatty) and not os.environ.get("NO_COLOR")
    output = io.StringIO()
    console = Console(
        file=output,
        width=max(shutil.get_terminal_size((99, 24)).columns, 80),
        force_terminal=colours,
        no_color=not colours,
        highlight=False,
    )
    failed = sum(len(terminalreporter.stats.get(kind, [])) for kind in ("failed", "error"))
    unconfirmed = carried(terminalreporter, UNCONFIRMED, "failed")
    interrupted = exitstatus == pytest.ExitCode.INTERRUPTED
    until = progress(terminalreporter) if interrupted else ""
    missed = named_shortly(left_unsaid(config, tallies))
    tallies = named_shortly(tallies)
    said = verdict(tallies, missed, failed=failed, unconfirmed=unconfirmed, until=until)
    console.print(said, markup=False, soft_wrap=True)
    for line in chain(fault_lines(tallies), unaccused_lines(missed)):
        console.print(line, markup=False, soft_wrap=True)
    console.print()
    console.print(outcome_table(tallies, everything=terminalreporter.verbosity > 0))
    for line in lines(tallies):
        console.print(line, markup=False, soft_wrap=True)
    for line in output.getvalue().splitlines():
        terminalreporter.write_line(line.rstrip())
    return result


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run in which tests passed or were skipped is not green if nothing was judged.

    Nor if one of them saw a wrong result, left it to another one to say, and none said it.
    """
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or session.exitstatus != pytest.ExitCode.OK:
        return
    tallies = tallies_in(reporter)
    if left_unsaid(session.config, tallies):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    elif tallies and not judged(tallies):
        session.exitstatus = NOTHING_JUDGED


def left_unsaid(config: pytest.Config, tallies: Sequence[Tally]) -> list[Tally]:
    """What was found wrong and left to tests that did not say it.

    Of a shard nobody knows: those tests may be in another one. `d5test merge` says it.
    """
    return [] if config.getoption("--shard") else unaccused(tallies)


def no_tests(selection: Selection) -> str:
    """The run in one line where no test was left."""
    choose = "--operator, --check, --dtype, -k, -m and --benchmark-only choose tests"
    for name, check in selection.checks.items() if selection.check_names else ():
        if "eager" not in check.modes:
            modes = " and ".join(check.modes)
            choose = f"--check={name} is asked of {modes} backends alone: NAME-{check.modes[0]}"
    return f"NOTHING WAS JUDGED: no test was left (exit status 5): {choose}"


def judged(tallies: Iterable[Tally]) -> int:
    """How many cases were judged."""
    return sum(tally.right + tally.fault + tally.known for tally in tallies)


def progress(reporter: pytest.TerminalReporter) -> str:
    """How far the run came: `47 of 161 tests`."""
    kinds = ("passed", "failed", "skipped", "xfailed", "xpassed")
    done = sum(len(reporter.stats.get(kind, [])) for kind in kinds)
    collected = reporter._session.testscollected  # type: ignore[union-attr]  # noqa: SLF001
    return f"{done} of {plural(collected, 'test')}"


def verdict(
    tallies: Sequence[Tally],
    missed: Sequence[Tally] = (),
    *,
    failed: int = 0,
    unconfirmed: Iterable[str] = (),
    until: str = "",
) -> str:
    """The run in one line.

    `missed` is what was found wrong and said by no test; `failed` tests may have shown no fault;
    `unconfirmed` is what was said of known failures; `until` is how far a run came that was
    interrupted.
    """
    right, untested = (sum(getattr(t, name) for t in tallies) for name in ("right", "untested"))
    names = sorted({f"{t.backend} {t.version}" for t in tallies if t.version})
    where = f"on {shortened(names)}"
    were = f"{plural(right, 'case')} {'was' if right == 1 else 'were'} right"
    known_causes = causes(tallies)
    stale = shortened(sorted(set(unconfirmed)), 1)
    if known_causes:
        faults = plural(sum(len(cause.faults) for cause in known_causes), "fault")
        of = plural(len(known_causes), "cause")
        also = f"; too little was judged in {plural(untested, 'test')}" if untested else ""
        also += f"; {stale}" if stale else ""
        also += f"; interrupted after {until}" if until else ""
        return f"FAILED: {faults} of {of} {where}; {were}{also}"
    if missed:
        wrong = shortened(sorted({tally.operator for tally in missed}))
        is_wrong = f"{wrong} {'is' if len(missed) == 1 else 'are'} wrong"
        return f"FAILED: {is_wrong}, though no test of values drew such a case; {were} {where}"
    if until:
        return f"INTERRUPTED after {until}: {were}, none was wrong so far {where}"
    if untested:
        return f"UNTESTED: too little was judged in {plural(untested, 'test')} {where}"
    if stale:
        return f"FAILED: {stale}; {were} {where}"
    if failed:
        tests = plural(failed, "test")
        return f"FAILED: {tests} failed, though no result was found wrong; {were} {where}"
    if not judged(tallies):
        return f"NOTHING WAS JUDGED {where} (exit status {NOTHING_JUDGED}): see the reasons below"
    left = sum(bool(t.left_out) for t in tallies)
    known = sum(t.known for t in tallies)
    rest = f"; {plural(known, 'case')} masked by known failures" if known else ""
    rest += f"; {plural(left, 'test')} left out" if left else ""
    return f"PASSED: {were}, none was wrong {where}{rest}"


def fault_lines(tallies: Sequence[Tally]) -> Iterator[str]:
    """The faults by cause: how many, what, where it shows, and the shortest reproducer."""
    every = causes(tallies)
    alike = Counter(cause.headline for cause in every)
    titles = [
        cause.headline + (f": {middle_cut(cause.difference)}" if alike[cause.headline] > 1 else "")
        for cause in every
    ]
    for title, cause in zip(titles[:CAUSES], every, strict=False):
        yield f"\n  {title}"
        yield f"    {plural(len(cause.faults), 'fault')}: {cause.cells}"
        if cause.reproducer:
            yield f"    shortest reproducer: {os.path.relpath(cause.reproducer)}"
    if every[CAUSES:]:
        yield from _other_causes(titles[CAUSES:], every[CAUSES:])


def unaccused_lines(missed: Sequence[Tally]) -> Iterator[str]:
    """What was found wrong by tests of something else, and how to have it judged."""
    for tally in missed:
        left = tally.left_to_others
        yield f"\n  {left['wrong']} on {tally.backend}: no test of values drew such a case"
        yield f"    met by: {tally.check} in {tally.dtype}, {left['case']}"
        if "text" in left:
            yield f"    {left['check']} says of it: {left['text']}"
        if left.get("reproducer"):
            yield f"    reproducer: {os.path.relpath(left['reproducer'])}"
            continue
        checks = left["check"]
        if "text" not in left:
            again = "found nothing wrong when it was asked again: the result differs between calls"
            yield f"    {checks} {again}"
            checks = f"{tally.check},{checks},determinism"
        options = f"--operator={tally.operator} --check={checks} --dtype={tally.dtype}"
        yield f"    have it judged: {options} --examples=200"


def _other_causes(titles: Sequence[str], others: Sequence[Cause]) -> Iterator[str]:
    """Each in a line, with its number of faults, and where reproducers are."""
    faults = [pair for cause in others for pair in cause.faults]
    yield f"\n  and {plural(len(others), 'more cause')} of {plural(len(faults), 'fault')}:"
    for title, cause in zip(titles, others, strict=True):
        yield f"    {middle_cut(title)} ({plural(len(cause.faults), 'fault')})"
    folders = {os.path.dirname(path) for _, fault in faults if (path := fault["reproducer"])}
    if folders:
        yield f"    reproducers: {', '.join(sorted(map(os.path.relpath, folders)))}"


def middle_cut(text: str) -> str:
    """A text in one line; a long one loses its middle, since many begin with the same words."""
    line = " ".join(text.split())
    if len(line) <= LONGEST:
        return line
    half = (LONGEST - len(CUT)) // 2
    return f"{line[:half].rstrip()}{CUT}{line[-half:].lstrip()}"


def tallies_in(terminalreporter: pytest.TerminalReporter) -> list[Tally]:
    """The tallies of all tests of this run."""
    return list(tallies_of(chain.from_iterable(terminalreporter.stats.values())))


def named_shortly(tallies: Sequence[Tally]) -> list[Tally]:
    """The same; a backend in a file goes by that without folders, if no other one does."""
    names = {tally.backend: short(tally.backend) for tally in tallies}
    alike = len(set(names.values())) < len(names)
    return [replace(t, backend=t.backend if alike else names[t.backend]) for t in tallies]


def outcome_table(tallies: Sequence[Tally], *, everything: bool) -> Table:
    """Cases by outcome, operators x backends. Where all was right, operators share one line."""
    backends = sorted({tally.backend for tally in tallies})
    noteworthy = {t.operator for t in tallies if everything or t.fault or t.known or t.untested}
    rest = {t.operator for t in tallies} - noteworthy
    groups: dict[str, set[str]] = {operator: {operator} for operator in sorted(noteworthy)}
    if noteworthy and rest:
        groups[f"{len(rest)} more"] = rest
    groups[f"all {len(noteworthy | rest)}"] = noteworthy | rest
    table = Table("operator", box=None, pad_edge=False)
    if len(backends) > 1:
        table.add_column("backend")
    for outcome in OUTCOMES:
        table.add_column(outcome, justify="right")
    for name, operators in groups.items():
        for backend in backends:
            row = [t for t in tallies if t.operator in operators and t.backend == backend]
            words = [name, backend] if len(backends) > 1 else [name]
            table.add_row(*words, *_counts(row), style="bold" if name.startswith("all") else "")
    return table


def _counts(tallies: Sequence[Tally]) -> Iterator[str]:
    for outcome in OUTCOMES:
        count = sum(getattr(tally, outcome) for tally in tallies)
        style = COLOURS.get(outcome) if count else None
        yield f"[{style}]{count}[/]" if style else str(count) if count else "."


def lines(tallies: Sequence[Tally]) -> Iterator[str]:
    """Everything else that the summary says: each section with its title, unless it is empty."""
    for title, section in SECTIONS.items():
        body = list(section(tallies))
        if body:
            yield f"\n{title}"
            yield from body
    left = [t for t in tallies if t.left_out]
    if left:
        reasons = Counter(t.left_out for t in left)
        yield "\nleft out: " + "; ".join(f"{count} tests, {why}" for why, count in reasons.items())
        yield from _left_out(left)
    for backend in sorted({t.backend for t in tallies if t.renewed}):
        times = plural(sum(t.renewed for t in tallies if t.backend == backend), "time")
        most = f"{MOST_MEMORY / 2**30:g} GiB"
        yield f"\nmemory: {backend}'s worker had grown by {most} and was renewed, {times}"
    used = [word for word in OUTCOMES if any(getattr(tally, word) for tally in tallies)]
    if used != ["right"]:
        yield ""
        yield from (f"{word}: {LEGEND[word]}" for word in used)


def _worst(tallies: Iterable[Tally]) -> Iterator[str]:
    for t in sorted((t for t in tallies if t.worst > 0), key=lambda t: -t.worst)[:WORST]:
        yield f"  {t.worst:5.3f}  {t.check} {t.operator} {t.dtype} {t.backend}  {t.worst_case}"


def _arithmetics(tallies: Iterable[Tally]) -> Iterator[str]:
    loosest: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for t in tallies:
        for name in t.arithmetics:
            classes = loosest[t.backend, t.dtype]
            classes[t.operator] = max(classes.get(t.operator, name), name, key=_looseness)
    for (backend, dtype), classes in sorted(loosest.items()):
        for name in sorted(set(classes.values()), key=_looseness):
            names = sorted(operator for operator, has in classes.items() if has == name)
            yield f"  {backend} {dtype} {name}: {len(names)}  {', '.join(names)}"


def _looseness(name: str) -> int:
    return ARITHMETICS.index(name) if name in ARITHMETICS else -1


def _by_function(
    tallies: Iterable[Tally], of: Callable[[Tally], Mapping[str, Measured]]
) -> list[tuple[tuple[str, str], list[tuple[str, Measured]]]]:
    """What tallies have of functions, by backend and dtype; only where there is any."""
    functions: dict[tuple[str, str], list[tuple[str, Measured]]] = defaultdict(list)
    for t in tallies:
        if of(t):
            functions[t.backend, t.dtype].extend(of(t).items())
    return sorted(functions.items())


def _accuracies(tallies: Iterable[Tally]) -> Iterator[str]:
    for (backend, dtype), functions in _by_function(tallies, lambda t: t.accuracy):
        worse = [(name, a) for name, a in functions if a.largest > ROUNDED]
        worst = sorted(worse, key=lambda named: -named[1].largest)[:LEAST_ACCURATE]
        words = (f"{ulps(a.largest)} {name} at {_place(a.at)}" for name, a in worst)
        share = sum((a for _, a in functions), Accuracy()).share_rounded
        yield f"  {backend} {dtype}: {', '.join(words) or 'none'}" + (
            "" if share is None else f"; {share:.1%}"
        )


def _grades(tallies: Iterable[Tally]) -> Iterator[str]:
    for (backend, dtype), functions in _by_function(tallies, lambda t: t.grades):
        naive = sorted((g.ratio, name, g.at) for name, g in functions if g.name == "naive")
        words = {
            "naive": [
                f"{name} {ratio:.3g} at {_place(at)}" for ratio, name, at in reversed(naive)
            ],
            "wrong": sorted(name for name, g in functions if g.name == "wrong"),
            "stable": sorted(name for name, g in functions if g.name == "stable"),
        }
        for grade, names in words.items():
            if names:
                yield f"  {backend} {dtype} {grade}: {len(names)}  {', '.join(names)}"


def _place(at: tuple[float, ...]) -> str:
    return " and ".join(f"{x:.4g}" for x in at)


def _modelled(tallies: Iterable[Tally]) -> Iterator[str]:
    counts: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for t in tallies:
        for model, count in t.models.items():
            counts[model, t.operator, t.backend][0] += count
            counts[model, t.operator, t.backend][1] += t.right
    for (model, operator, backend), (count, right) in sorted(counts.items()):
        yield f"  {count:5} of {right} cases: {operator} {backend}: {model}"


def _masked(tallies: Iterable[Tally]) -> Iterator[str]:
    counts: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for t in tallies:
        if t.known:
            counts[t.backend, t.check, t.operator, t.dtype][0] += t.known
            counts[t.backend, t.check, t.operator, t.dtype][1] += t.drawn
    for (backend, check, operator, dtype), (known, drawn) in sorted(counts.items()):
        yield f"  {known / drawn:4.0%} of {drawn} cases: {check} {operator} {dtype} {backend}"


def _unjudged(tallies: Iterable[Tally]) -> Iterator[str]:
    reasons: Counter[str] = Counter()
    for t in tallies:
        reasons.update(t.reasons)
    for reason, count in reasons.most_common(REASONS):
        yield f"  {count:5}  {middle_cut(reason)}"
    others = reasons.most_common()[REASONS:]
    if others:
        yield f"  {sum(count for _, count in others):5}  for {len(others)} other reasons"


def _left_out(tallies: Iterable[Tally]) -> Iterator[str]:
    by_check: dict[str, list[str]] = defaultdict(list)
    for t in tallies:
        by_check[t.check].append(
            f"{t.operator} {t.dtype}" if t.operator else "cells that do not apply"
        )
    for check, cells in sorted(by_check.items()):
        some = ", ".join(cells[:6]) + (", ..." if len(cells) > 6 else "")
        yield f"  {check}: {len(cells)} ({some})"


SECTIONS = {
    "largest error / bar among the right ones": _worst,
    "class of 16-bit arithmetic: F rounds outputs, P every primitive, S sums as well": (
        _arithmetics
    ),
    "errors of functions above half a ULP, and where; the share rounded correctly": _accuracies,
    "stable or naive formula? (naive: worst error / bar, at x)": _grades,
    "right by an error model of a known inaccuracy, wrong without it": _modelled,
    "masked by known failures": _masked,
    "not judged, by reason": _unjudged,
}
