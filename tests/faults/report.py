"""docs/faults.md: the scores, what survived, and which check finds which backend."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.faults.equal import reason
from tests.faults.mutants import KINDS
from tests.faults.score import COUNTS, Outcome

COLUMNS = ("found", "made", "score", "equal", "same bits", "dropped")


def score(counts: Mapping[str, int]) -> float:
    """The share of the faults that was found."""
    made = counts["found"] + counts["survived"]
    return counts["found"] / made if made else 1.0


def verdict(one: Outcome) -> str:
    """As `Outcome.verdict`, with `equal` for what is no fault by mathematics."""
    return "equal" if one.verdict == "survived" and reason(one.mutant) else one.verdict


def table(found: Sequence[Outcome], first: str, rows: Iterable[tuple[str, Counter[str]]]) -> str:
    """A row for each operator or kind, and their sum."""
    lines = [f"| {first} | {' | '.join(COLUMNS)} |", f"|---|{'---:|' * len(COLUMNS)}"]
    total = Counter(verdict(one) for one in found)
    for name, counts in (*rows, ("all", total)):
        made = counts["found"] + counts["survived"]
        cells = (counts["found"], made, f"{score(counts):.1%}", counts["equal"],
                 counts["equivalent"], counts["dropped"])  # fmt: skip
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def tally(found: Iterable[Outcome], by: str) -> dict[str, Counter[str]]:
    """Verdicts by `operator` or by `kind`."""
    counts: dict[str, Counter[str]] = {}
    for one in found:
        counts.setdefault(getattr(one.mutant, by), Counter())[verdict(one)] += 1
    return counts


def unfound(found: Iterable[Outcome]) -> list[str]:
    """Each operator and kind of which there are faults, and none was found."""
    counts: dict[str, Counter[str]] = {}
    for one in found:
        key = f"{one.mutant.operator}, {one.mutant.kind}"
        counts.setdefault(key, Counter())[verdict(one)] += 1
    return [key for key, each in counts.items() if each["survived"] and not each["found"]]


def document(found: Sequence[Outcome], backends: Sequence[tuple[str, str, str, str]]) -> str:
    """The whole page. `backends`: name, first line of its text, check, what the check says."""
    kinds = tally(found, "kind")
    finders = Counter(one.by for one in found if one.by)
    survivors = [one for one in found if verdict(one) == "survived"]
    equal = [one for one in found if verdict(one) == "equal"]
    silent = sorted({
        f"{one.mutant.operator}: {one.mutant.change}" for one in found
        if one.verdict == "equivalent" and one.mutant.kind == "attribute"
        and one.mutant.where != "backward"
    })  # fmt: skip
    drawn = " and ".join(f"{count} cases in {dtype}" for dtype, count in COUNTS.items())
    parts = [
        "# Which faults are found",
        "Made by `make faults` (`python -m tests.faults`); not written by hand.",
        "## Mutants",
        "Each reference operator with one change, in its source or in its results, as the row of "
        f"a backend; judged by the checks on {drawn}, the same ones each time.",
        "*found*: a check found it. *made*: found and survived. *equal*: another formula for the "
        "same function, by mathematics (listed below). *same bits*: on every case that was drawn "
        "the outputs and gradients are the reference's, bit for bit. *dropped*: it raises, or "
        "does not end, wherever it differs.",
        table(found, "kind", ((kind, kinds[kind]) for kind in KINDS if kind in kinds)),
        f"Found first by: {', '.join(f'{by} {n}' for by, n in finders.most_common())}.",
        "### Survivors",
        listed(f"{one.mutant} ({one.differing} cases differ, at most {one.ratio:.2g} of the bar)"
               for one in survivors),
        "### Equal by mathematics",
        listed(f"{one.mutant}: {reason(one.mutant)}" for one in equal),
        "### Attributes without effect on the drawn cases",
        "An attribute that repeats what the shapes say, or that chooses an arithmetic, has none; "
        "any other one here is drawn too seldom.",
        listed(silent),
        "### By operator",
        table(found, "operator", tally(found, "operator").items()),
        "## Backends that are wrong on purpose",
        "The first check that finds each, in the order of the suites. *alone*: no other check "
        "does.",
        "\n".join(["| backend | fault | check | alone | says |", "|---|---|---|---|---|",
                   *(f"| {' | '.join(row)} |" for row in backends)]),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def listed(lines: Iterable[str]) -> str:
    """A list in Markdown; `None.` if it is empty."""
    return "\n".join(f"* `{line}`" for line in lines) or "None."
