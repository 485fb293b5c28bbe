"""Measure the budget, print it, and write it down: `python -m tests.budget [LINE ...]`.

A line that is not met is printed as such; the exit status is 0 all the same, since a busy machine
is no fault of the code.
"""

import os

for pool in ("OMP", "OPENBLAS", "MKL"):  # one thread each, before anything is imported
    os.environ[f"{pool}_NUM_THREADS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import platform
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import psutil

from tests.budget.measure import Line

# subprocesses first: what is imported later weighs on a fork
PARTS = ("collecting", "collectives", "cases", "bars", "references", "examples", "calls",
         "native_bridges", "native_convolutions", "networks", "optimizers")  # fmt: skip
PAGE = Path(__file__).parents[2] / "docs" / "budget.md"
HEAD = ("what", "measured (median)", "95% interval", "A/A interval", "bound", "", "how much")
INTRODUCTION = """\
# The performance budget of level 0, measured

Written by `python -m tests.budget` (`make benchmarks`). Each line is measured within one run: both
sides in turn, in random order, one pair a round, in CPU seconds where nothing is waited for.
Measured is the median of the pairs, with its
95% interval from order statistics; *A/A* is the same interval for the other side against itself.
A bound is met if the interval's upper limit keeps it; *unsure* says that the A/A arm broke it too,
so that the machine was too busy to tell. Without a bound: for information.
"""
LIMITS = """\
## What is not met, and why

* **Bars at sizes as drawn** of formulas that are a chain of elementwise functions: calls of
  NumPy, on arrays of 2 to 150 elements. [Numerics](numerics.md#what-a-bar-costs) counts them.
* **The smallest reference convolution**: 405 calls of Python's for what torch does in two. A
  third of the time pads x and shows the windows, in forward and in backward, a fifth adds what
  the nine taps give back, 3% are the three products of matrices. From the next size on these
  decide.
* **Steps of ResNet-8**, which has 37 tensors of up to 37,000 elements: for each of them Adam's
  rule is 12 calls of torch and a copy, `torch.optim` has 8, fused; Momentum's 4 and a copy
  against 3. A rule that reads like its paper has no fused ones. ResNet-18's updates take 1.4%
  and 2.6% of its steps more, and its bound is met.
"""


def main(parts: Sequence[str]) -> None:
    """Measure what is asked for; all of it is written down."""
    start, lines = time.monotonic(), []
    for part in parts or PARTS:
        for line in import_module(f"tests.budget.{part}").lines():
            print("  ".join(filter(None, line.cells())), flush=True)
            lines.append(line)
    bounded = [line for line in lines if line.bound is not None]
    met = sum(line.verdict == "met" for line in bounded)
    print(f"{met} of {len(bounded)} bounds met, {time.monotonic() - start:.0f} s")
    for line in bounded:
        if line.verdict != "met":
            print(f"{line.verdict}: {line.what}")
    if not parts:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(lines))


def page(lines: Sequence[Line]) -> str:
    """The lines as a table, and where they were measured."""
    frameworks = (
        f"{name} {version(name)}"
        for name in ("numpy", "torch", "jax", "tensorflow-cpu", "hypothesis")
    )
    where = (
        f"Measured with {', '.join(frameworks)}, Python {platform.python_version()}, on "
        f"{psutil.cpu_count()} cores ({platform.machine()}), load {psutil.getloadavg()[0]:.1f}; "
        "one thread each.\n"
    )
    rows = [HEAD, ("---",) * len(HEAD), *(line.cells() for line in lines)]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return f"{INTRODUCTION}\n{where}\n{table}\n\n{LIMITS}"


main(sys.argv[1:])
