"""Fit a machine, alpha to gamma, to measured allreduces: d5test fit times.json

Requirements: exit status 0: fitted, however well; 2: the command line or a file is wrong, or
has too few times, in one line. Each size is predicted by a fit that has not seen it.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from d5test.arguments import Mistake

if TYPE_CHECKING:
    from d5test.simulation.fit import Fit, Prediction, Time

JUDGED = 0.25
"""Relative error up to which the summary counts a prediction."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "side",
        metavar="FILE",
        help="benchmark JSON of suites/distributed/test_time.py under mpirun: files, folders, "
        "'patterns*', by commas",
    )
    parser.add_argument("-o", "--output", metavar="PATH", help="write JSON, too")


def execute(options: argparse.Namespace) -> int:
    """Read, fit, predict, print; its exit status."""
    from d5test.files import replace
    from d5test.simulation.fit import as_json, predictions

    times, fit = fitted(options.side)
    predicted = list(predictions(times))
    print("\n".join(described(fit)))
    _show(predicted)
    if options.output:
        replace(options.output, json.dumps(as_json(fit, predicted), indent=1) + "\n")
    return 0


def fitted(side: str) -> tuple[list[Time], Fit]:
    """The times in files, and the machine. Raises `Mistake`."""
    from d5test.compare import Unreadable
    from d5test.compare.reading import read
    from d5test.simulation.fit import TooFew, bends_of, fit, times_of

    try:
        times = times_of([entry for run in read(side, 1) for entry in run.entries.values()])
        return times, fit(times, bends_of(times))
    except (Unreadable, TooFew) as error:
        raise Mistake(str(error)) from None


def described(fit: Fit) -> list[str]:
    """A line for each parameter, with its interval or with why it has none; and the spread."""
    from d5test.metric import TIME, measured

    lines, width = [], max(map(len, fit.values))
    for name, value in fit.values.items():
        unit = " a byte" if name.startswith(("beta", "gamma")) else ""
        half = fit.half(name)
        if fit.determined[name]:
            low, high = (measured(v, TIME) for v in (value - half, value + half))
            said = f"{measured(value, TIME)}{unit}, 95% interval {low} to {high}"
        else:
            most = f"up to {measured(value + half, TIME)}{unit}" if half < float("inf") else "any"
            said = f"not determined by these times: {most} ({measured(value, TIME)} fits best)"
        lines.append(f"{name:{width}}  {said}")
    lines.append(f"measured is off what is predicted by {fit.residual:.0%} (standard deviation)")
    return lines


def _show(predicted: list[Prediction]) -> None:
    from rich.table import Table

    from d5test.console import Console
    from d5test.metric import RESIDENT, TIME, measured

    table = Table(box=None)
    for column in ("algorithm", "ranks", "bytes", "measured", "predicted", "off"):
        table.add_column(column, justify="left" if column == "algorithm" else "right")
    for row in predicted:
        time = row.time
        table.add_row(time.algorithm, str(time.ranks), measured(time.nbytes, RESIDENT),
                      measured(time.seconds, TIME), measured(row.predicted, TIME),
                      f"{row.off:+.0%}" + ("" if row.held_out else " (seen)"))  # fmt: skip
    Console(highlight=False).print(table)
    near = sum(abs(row.off) <= JUDGED for row in predicted)
    unseen = all(row.held_out for row in predicted)
    how = "by fits to the other sizes" if unseen else "by a fit that has seen them"
    print(f"within {JUDGED:.0%}: {near} of {len(predicted)}, predicted {how}")
