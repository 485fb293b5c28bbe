"""Twelve ways to fool the masses with the performance of deep learning, as rules against them.

After Torsten Hoefler's list; in the words of this page, with what the records say of each.
"""

from __future__ import annotations

from d5test.compare.detail import positive_at
from d5test.compare.environment import differing
from d5test.compare.words import plain
from d5test.metric import RIGHT
from d5test.record import KEY, OPERATIONS
from d5test.report.rules import Evidence, Finding, Rule, Rules, counted, untold

HARDWARE = ("processor", "cores", "usable cores", "memory", "driver")
"""Facts of the machine; those of a backend's device end in `DEVICE`."""
DEVICE = ": device name"


def _accuracy_at_scale(found: Evidence) -> Finding:
    ranks = [*(step.ranks for step in found.steps), *(call.ranks for call in found.collectives)]
    several = sum(count > 1 for count in ranks)
    if not several:
        return Finding("none", "nothing was timed on more than one rank")
    return Finding(
        "untold",
        f"{several} times on more than one rank: the suite judges their results and writes "
        "no time of wrong ones, but the records do not say by how much they were right",
    )


def _hardware(found: Evidence) -> Finding:
    sides = [[run.facts for run in side] for side in (found.report.old, found.report.new)]
    if not sides[0]:
        return Finding("none", "no version is compared to another")
    names = {n for facts in (*sides[0], *sides[1]) for n in facts}
    asked = {name for name in names if name in HARDWARE or name.endswith(DEVICE)}
    if not asked:
        return Finding("untold", "the files say nothing about the hardware")
    changed = sorted(asked & set(differing(*sides)))
    named = f" ({', '.join(map(plain, changed))})" if changed else ""
    return counted(len(changed), len(asked), f"facts of the hardware differ{named}")


def _kernels(found: Evidence) -> Finding:
    if found.steps:
        return Finding("kept", f"{len(found.steps)} times are of whole steps of a network")
    calls = len(found.collectives)
    return counted(calls, calls, "distributed times are of a collective alone, not of a step")


def _transfers(found: Evidence) -> Finding:
    n = len(found.records)
    return counted(n, n, "times leave out how inputs come to the device and outputs from it")


def _operations(found: Evidence) -> Finding:
    rates = [d.about for _, d in found.records if f"{KEY}.flop_per_second" in d.about]
    other = 0
    for about in rates:
        factor = OPERATIONS.get(str(about[f"{KEY}.direction"]))
        products, seconds = (
            positive_at(about, f"{KEY}.{n}") for n in ("multiplications", "median")
        )
        told = factor * products / seconds if factor and products and seconds else None
        other += about[f"{KEY}.flop_per_second"] != told
    return counted(
        other, len(rates), "rates are not 2 operations a product of the formula (4 back)"
    )


def _same_options(found: Evidence) -> Finding:
    unjudged = sum(RIGHT.name not in entry.samples for entry, _ in found.entries)
    return counted(
        unjudged, len(found.entries), "times have no judgement of the outputs that were timed"
    )


def _sizes(found: Evidence) -> Finding:
    unsourced = sum(not d.about.get(f"{KEY}.source") for _, d in found.records)
    return counted(unsourced, len(found.records), "problems do not say where their sizes are from")


def _minibatch(found: Evidence) -> Finding:
    sizes: dict[str, set[float]] = {}
    for step in found.steps:
        share = step.samples / step.ranks if step.mode == "weak" else step.samples
        sizes.setdefault(step.series, set()).add(share)
    changed = sum(len(found) > 1 for found in sizes.values())
    return counted(changed, len(sizes), "series change the minibatch (weak scaling: of a rank)")


def _rival(found: Evidence) -> Finding:
    comparison = found.report.comparison
    if comparison is None:
        return Finding("none", "no version is compared to another")
    left = len(comparison.matching.vanished) + len(comparison.matching.changed)
    names = {name for run in found.report.old for name in run.entries}
    return counted(left, len(names), "benchmarks of the old version are not compared")


RULES = Rules(
    "Twelve ways to fool the masses",
    "T. Hoefler, on performance of deep learning",
    (
        Rule(1, "Accuracy stands beside the performance at scale", _accuracy_at_scale),
        Rule(2, "Test accuracy is told", untold("the records hold no training")),
        Rule(3, "All training runs for tuning are told", untold("the records hold no tuning")),
        Rule(4, "Old hardware is not compared with new", _hardware),
        Rule(5, "Scaling is that of the whole, not of a kernel", _kernels),
        Rule(6, "Input and output are in the time", _transfers),
        Rule(7, "Operations are counted one way", _operations),
        Rule(8, "Performance and accuracy have the same options", _same_options),
        Rule(9, "Inputs have a size that somebody uses", _sizes),
        Rule(
            10, "It is not trained for just the right time", untold("the records hold no training")
        ),
        Rule(11, "The minibatch is not sized for the figure", _minibatch),
        Rule(12, "The rival is not chosen with care", _rival),
    ),
)
