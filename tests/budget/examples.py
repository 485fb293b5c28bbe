"""Hypothesis and the harness around a case: an exploration whose check does nothing.

What is left is drawing the case, Hypothesis' engine, counting the outcome. The question to a
worker is a line of its own.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from d5test.case import Case
from d5test.checks import CHECKS
from d5test.checks.inquiry import Inquiry
from d5test.client.client import WorkerClient
from d5test.exploration.explore import Exploration
from d5test.numerics.judgement import Judgement
from d5test.outcome.tally import Tally
from d5test.reference.operators import OPERATORS
from d5test.strategies.sizes import Seed
from tests.budget.measure import Line, in_turn

BOUND = 2.0
EXAMPLES = 25
SUBJECTS = ("Conv", "LSTM", "Attention", "Softmax", "Add")


def nothing(client: Any, case: Case) -> Judgement:
    """A check that finds every case right."""
    return Judgement(telling=True)


def asking(client: Any, case: Case) -> Judgement:
    """A check that asks the backend, and believes what it says."""
    inquiry = Inquiry("forward", client, case)
    inquiry.ask(inquiry.feed())
    return Judgement(telling=True)


def lines() -> Iterator[Line]:
    """One for each operator, and two that ask a worker."""
    for name in SUBJECTS:
        yield line(f"Hypothesis and harness, {name}", name, nothing, None, BOUND)
    with WorkerClient("torch", threads=1) as client:
        client.about  # noqa: B018 - the worker starts now
        for name in ("Conv", "Softmax"):
            what = f"the same, with the data made and the worker asked, {name}"
            yield line(what, name, asking, client, None)


def line(
    what: str, name: str, run: Callable[[Any, Case], Judgement], client: Any, bound: float | None
) -> Line:
    """Milliseconds an example, over explorations as the suite has them; A/A: their differences."""
    check = replace(CHECKS["forward"], run=run)
    now = time.process_time if client is None else time.perf_counter  # a worker is waited for

    def explored() -> float:
        tally = Tally("", check.name, name, "float32")
        exploration = Exploration(
            client, check, OPERATORS[name], "float32", tally, EXAMPLES, lambda case: False
        )
        start = now()
        exploration.faults(Seed(0))
        return (now() - start) / tally.drawn

    times = in_turn({"one": explored, "again": explored}, rounds=21, seconds=3.0)
    one, again = 1e3 * times["one"], 1e3 * times["again"]
    context = f"{len(one)} explorations of {EXAMPLES} examples"
    return Line(what, "ms an example", tuple(one), tuple(again - one), bound, context)
