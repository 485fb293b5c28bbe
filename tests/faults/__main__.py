"""`python -m tests.faults`: judge every mutant and every wrong backend, write docs/faults.md.

With names of operators: those alone, and nothing is written.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.faults import report
from tests.faults.known import EVERY, Finding, found_first
from tests.faults.score import VALUED, Outcome, outcomes_alone

DOCUMENT = Path(__file__).parents[2] / "docs" / "faults.md"
PROCESSES = min(4, os.cpu_count() or 1)


def main(names: list[str]) -> int:
    """1 if a backend was not found, or of an operator no mutant of some kind."""
    unknown = [name for name in names if name not in VALUED]
    if unknown:
        print(f"no operator {', '.join(unknown)}; there are {', '.join(VALUED)}")
        return 2
    begun = time.monotonic()
    found = list(judged(names or list(VALUED)))
    print(report.table(found, "operator", report.tally(found, "operator").items()))
    print(report.table(found, "kind", report.tally(found, "kind").items()))
    survivors = [one for one in found if report.verdict(one) == "survived"]
    for one in survivors:
        print(f"survived: {one.mutant}")
    blind = report.unfound(found)
    for kind in blind:
        print(f"nothing is found: {kind}")
    backends = [] if names else [row(finding) for finding in EVERY]
    missed = [name for name, _, check, *_ in backends if not check]
    for name in missed:
        print(f"not found: {name}")
    print(f"{len(found)} mutants and {len(backends)} backends in {time.monotonic() - begun:.0f} s")
    if not names:
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(report.document(found, backends))
        print(f"written to {DOCUMENT}")
    return 1 if missed or blind else 0


def judged(names: list[str]) -> Iterator[Outcome]:
    """Every mutant of these operators, a process each."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with multiprocessing.get_context("spawn").Pool(PROCESSES, maxtasksperchild=8) as pool:
        for found in pool.imap(outcomes_alone, names):
            yield from found


def row(finding: Finding) -> tuple[str, ...]:
    """A line of the table of backends."""
    fault = found_first(finding)
    what = (finding.backend.__doc__ or "").splitlines()[0] if finding.backend.__doc__ else ""
    says = fault.headline.partition(": ")[2].partition(f" on {finding} ")[0] if fault else ""
    says = says.partition(" at ")[0]  # the line changes too often
    alone = "yes" if finding.alone else ""
    return str(finding), what, fault.check if fault else "", alone, says


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
