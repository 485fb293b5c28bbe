"""What must hold of a distributed optimizer, on every communicator that runs schedules.

As `d5test.distributed.checks`, for cases whose operator is `Descent`. A probe trains on gradients
that are told, not computed: whole numbers, from which one can read who has seen whose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import lcm
from types import MappingProxyType
from typing import Any

import numpy as np

from d5test.case import Case, dtype_of
from d5test.distributed.cases import descent
from d5test.distributed.communicator import Array, Reduced, Runner
from d5test.distributed.descent import (
    AVERAGING,
    CONSISTENT,
    DISTRIBUTED,
    ONE_SIDED,
    SERVERS,
    Descent,
)
from d5test.distributed.inquiry import RIGHT, Inquiry, Property
from d5test.distributed.optimizers import DistributedOptimizer, Gradient, neighbours
from d5test.numerics.arithmetic import classes, format_of
from d5test.numerics.bounds import double, forward_bounds, lower_precision
from d5test.numerics.controls import telling
from d5test.numerics.judgement import Judgement, judge
from d5test.outcome.fault import judgement_in_words
from d5test.reference.optimizers import GradientDescent

LAG = "gradients by which a read lagged behind its reader"
WHOLE_STEP = GradientDescent(lr=1.0)
Formula = Callable[[Array, Array], Array]
"""(parameters, gradients) of all ranks, (ranks, n) each -> parameters after a step of length 1."""


def _mixed(w: Array) -> Array:
    """The mean of each rank's row and its neighbours'."""
    rows = [[rank, *neighbours(rank, len(w))] for rank in range(len(w))]
    return np.array([w[row].mean(axis=0) for row in rows])


def _silent(g: Array, rank: int) -> Array:
    """Gradients, that of a rank being zero."""
    told = g.copy()
    told[rank] = 0
    return told


def _everywhere(w: Array, row: Array) -> Array:
    return np.broadcast_to(row, w.shape)


def _served(w: Array, g: Array) -> Array:
    """At the server; the workers have what they read last, the parameters at the start."""
    return np.concatenate([[w[0] - g[1:].sum(axis=0)], w[1:]])


def _reached(w: Array, g: Array) -> Array:
    """As at a server, where rank 0 is a worker too."""
    return np.concatenate([[w[0] - g.sum(axis=0)], w[1:]])


STEPS: Mapping[str, Formula] = MappingProxyType(
    {
        **dict.fromkeys(CONSISTENT, lambda w, g: _everywhere(w, w[0] - g.mean(axis=0))),
        "neighbour_averaging": lambda w, g: _mixed(w) - g,
        "model_averaging": lambda w, g: _everywhere(w, (w - 2 * g).mean(axis=0)),
        **dict.fromkeys(SERVERS, _served),
        **dict.fromkeys(ONE_SIDED, _reached),
    }
)
"""What one step does, or as many as `ModelAveraging` makes between two averages: two."""

Suspect = Callable[[Formula, Array, Array], Array]
"""As a formula, given the right one."""

SUSPECTS: Mapping[str, Suspect] = MappingProxyType(
    {
        "an average over one rank too few": lambda _, w, g: w - g.sum(0) / max(len(g) - 1, 1),
        "an average over one rank too many": lambda _, w, g: w - g.sum(0) / (len(g) + 1),
        "a sum instead of an average": lambda _, w, g: w - g.sum(0),
        "each rank's own gradient": lambda _, w, g: w - g,
        "an average of neighbours' gradients, not of parameters": lambda right, w, g: (
            w - _mixed(g)
        ),
        "ranks swapped: gradients in reverse": lambda right, w, g: right(w, g[::-1]),
        "ranks swapped: each has its neighbour's gradient": lambda right, w, g: right(
            w, np.roll(g, 1, axis=0)
        ),
        "the last rank's gradient left out": lambda right, w, g: right(w, _silent(g, -1)),
        "the gradient of rank 0 left out": lambda right, w, g: right(w, _silent(g, 0)),
        "no step at all": lambda _, w, g: w,
    }
)
"""What a wrong result may be, by name."""


def one_step(comm: Runner, case: Case) -> Judgement:
    """After one step with gradients of rank + 1 each rank has exactly what the formula says.

    Averaging begins with different parameters at each rank, the others with the same ones. All
    numbers are multiples of what they are divided by.
    """
    op, inquiry = _begin("one_step", comm, _plain(case))
    averages = op.optimizer in AVERAGING
    unit = lcm(6, inquiry.size) * (1 + np.arange(inquiry.n) % 5)
    factors = np.arange(1, inquiry.size + 1)[:, None]
    gradients = (unit * factors).astype(inquiry.dtype)
    starts = (unit * factors[::-1] ** 2 if averages else unit + 0 * factors).astype(inquiry.dtype)
    optimizer = comm.optimizers[op.optimizer](WHOLE_STEP)
    steps = getattr(optimizer, "every", 1)
    results = _train(
        inquiry, optimizer, starts, lambda rank: lambda step, w: gradients[rank].copy(), steps
    ).results
    told = starts.astype(np.float64), gradients.astype(np.float64)
    right = STEPS[op.optimizer]
    want, got = right(*told), np.array(results, np.float64)
    if np.array_equal(got, want):
        return RIGHT
    rank, element = (int(i) for i in np.argwhere(got != want)[0])
    details = {
        "where": f"element [{element}] of rank {rank}",
        "got": f"{got[rank, element]:.10g}",
        "want": f"{want[rank, element]:.10g}, from {starts[rank, element]:g} "
        f"with the gradients {', '.join(f'{g:g}' for g in gradients[:, element])}",
    }
    # a suspect divides where the right formula does not have to: a sum, a quotient, a difference
    reach = np.abs(told[0]) + np.abs(told[1]).sum(axis=0)
    roundings = 3 * format_of(inquiry.dtype).u * reach
    named = [
        name
        for name, wrong in SUSPECTS.items()
        if np.all(np.abs(got - wrong(right, *told)) <= roundings)
    ]
    if named:
        details["looks like"] = named[0]
    raise inquiry.fault("step", "a step is wrong", None, **details)


def sequential(comm: Runner, case: Case) -> Judgement:
    """As one process with all minibatches, within the bar of the distributed sums.

    For a consistent optimizer that is the base optimizer on the joined minibatch; where replicas
    are averaged, it holds all of them.
    """
    op, inquiry = _begin("sequential", comm, case)
    results = _descend(inquiry, op).results
    return comm.agree(lambda: _as_one_process(inquiry, op, results))


def _as_one_process(inquiry: Inquiry, op: Descent, results: tuple[Array, ...]) -> Judgement:
    (arithmetic,) = classes(inquiry.dtype)
    right = op.sequential(*double(inquiry.arrays))
    bounds = tuple(
        replace(bound, value=value) if bound is not None else None
        for value, bound in zip(right, forward_bounds(op, inquiry.arrays, arithmetic), strict=True)
    )
    judgement = judge(bounds, results)
    if not judgement.right:
        words = judgement_in_words(judgement, inquiry.case.dtype)
        words["worst"] = words["worst"].replace("result ", "rank ")
        where = "on the joined minibatch" if op.optimizer in CONSISTENT else "in one process"
        what = f"a rank is not where {op.base} is {where}"
        raise inquiry.fault("value", what, judgement, **words)
    tells, void = telling(
        bounds, inquiry.arrays, lambda: lower_precision(op, inquiry.arrays, None, inquiry.dtype)
    )
    return replace(judgement, telling=tells, void=void or judgement.share == 0)


def replicas(comm: Runner, case: Case) -> Judgement:
    """All ranks have the same bits after each number of steps."""
    op, inquiry = _begin("replicas", comm, case)
    return inquiry.equal(_descend(inquiry, op).results)


def traffic(comm: Runner, case: Case) -> Judgement:
    """The bytes sent are what the optimizer's formula says."""
    op, inquiry = _begin("traffic", comm, case)
    sent = _descend(inquiry, op).traffic or ()
    optimizer = DISTRIBUTED[op.optimizer](WHOLE_STEP)
    items = optimizer.items(inquiry.size, inquiry.n, op.steps)
    bytes_ = (sum(t.bytes for t in sent), items * dtype_of(inquiry.dtype).itemsize)
    return inquiry.costs({"bytes": bytes_}, f"{type(optimizer).__name__}.items")


def staleness(comm: Runner, case: Case) -> Judgement:
    """No read lacks more than the bound allows, and no gradient is lost.

    Element `r` is moved by rank `r` alone, by 1 for each of its gradients: the parameters that a
    worker reads are the clocks of all workers as it sees them. The judgement's ratio is the worst
    lag over the bound, `got` the lag.
    """
    op, inquiry = _begin("staleness", comm, _plain(case))
    steps, size = 4 * op.steps, inquiry.size
    reads: dict[int, list[Array]] = {rank: [] for rank in range(size)}

    def clockwork(rank: int) -> Gradient:
        def gradient(step: int, w: Any) -> Any:
            reads[rank].append(0 - w)
            return np.eye(size, dtype=w.dtype)[rank]

        return gradient

    optimizer = comm.optimizers[op.optimizer](WHOLE_STEP)
    starts = np.zeros((size, size), inquiry.dtype)
    final = -_train(inquiry, optimizer, starts, clockwork, steps).results[0]
    ours: Any = DISTRIBUTED[op.optimizer](WHOLE_STEP)
    workers, worst = ours.workers(size), 0.0
    for worker, seen in enumerate(comm.everywhere(reads)):
        for clock, read in enumerate(seen):
            clocks = read[workers]
            lag = float(clock - clocks.min())
            worst = max(worst, lag)
            told = {
                "who": f"rank {worker}, after {clock} gradients of its own",
                "read": f"clocks {', '.join(f'{c:g}' for c in clocks)} of the workers",
                "lag": f"{lag:g}, at most {ours.bound:g}",
            }
            if lag > ours.bound:
                raise inquiry.fault("stale", "a read is staler than its bound", None, **told)
            if read[worker] != clock:
                raise inquiry.fault("lost", "a worker does not read what it sent", None, **told)
    if np.any(final[workers] != steps):
        counts = ", ".join(f"{count:g}" for count in final[workers])
        raise inquiry.fault("lost", "gradients are lost", None, got=counts, want=f"{steps} each")
    return replace(
        RIGHT, ratio=worst / ours.bound if ours.bound else 0.0, got=worst, bar=float(ours.bound)
    )


def _begin(check: str, comm: Runner, case: Case) -> tuple[Descent, Inquiry]:
    op = case.op
    assert isinstance(op, Descent)
    return op, Inquiry(check, comm, case, len(case.inputs) // 2)


def _plain(case: Case) -> Case:
    """The case with the base optimizer of a probe, whichever was drawn."""
    return replace(case, op=case.op.with_(base=WHOLE_STEP.name))


def _descend(inquiry: Inquiry, op: Descent) -> Reduced:
    """What the communicator's own optimizer makes of the case."""
    w, *minibatches = inquiry.arrays
    comm: Any = inquiry.comm
    optimizer = comm.optimizers[op.optimizer](op.base_optimizer(w))
    starts = [w] * inquiry.size
    return _train(
        inquiry, optimizer, starts, lambda r: op.gradient(r, tuple(minibatches)), op.steps
    )


def _train(
    inquiry: Inquiry,
    optimizer: DistributedOptimizer,
    starts: Any,
    gradient_of: Callable[[int], Gradient],
    steps: int,
) -> Reduced:
    def program(rank: int, size: int, w: Any) -> Any:
        return optimizer.train(rank, size, w, gradient_of(rank), steps)

    comm: Any = inquiry.comm
    order, exposed = inquiry.case.op.attributes["order"], optimizer.exposed
    room = optimizer.room(inquiry.size)
    arrays = [np.concatenate([start, np.zeros(room, start.dtype)]) for start in starts]
    reduced = inquiry.attempt(lambda: comm.run(program, arrays, order, exposed=exposed), arrays)
    return replace(reduced, results=tuple(x[: len(x) - room] for x in reduced.results))


def _row(
    name: str, run: Any, subjects: Iterable[str], kind: str = "structural", **more: Any
) -> Property:
    dtypes = ("float64", "float32")
    return Property(name, run, dtypes, kind, subjects=tuple(subjects), one=descent, **more)


DESCENT: Mapping[str, Property] = MappingProxyType(
    {
        check.name: check
        for check in (
            _row("one_step", one_step, DISTRIBUTED),
            _row("sequential", sequential, (*CONSISTENT, *AVERAGING), "value"),
            _row("replicas", replicas, CONSISTENT),
            _row("staleness", staleness, (*SERVERS, *ONE_SIDED), least=2, measures=LAG),
            # with a bound, one-sided access waits by reading
            _row("traffic", traffic, [name for name in DISTRIBUTED if name != "one_sided-2"]),
        )
    }
)
"""By name, in the order in which they run."""
