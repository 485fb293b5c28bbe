"""What must hold of a distributed optimizer, on every communicator that runs schedules.

As `d5test.distributed.checks`, for cases whose operator is `Descent`. Some probes train on
gradients that are told, not computed: whole numbers, from which one can read who has seen whose.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import lcm
from typing import Any

import numpy as np

from d5test.case import Case
from d5test.distributed.checks import RIGHT, Property, RanksInquiry, same
from d5test.distributed.communicator import Array, ByRank, Reduced, Runner
from d5test.distributed.descent import Descent, Replay, descent
from d5test.distributed.graphs import GRAPHS, mixing, spectral_gap
from d5test.distributed.judges import Judge, single
from d5test.distributed.optimizer import DistributedOptimizer, Gradient
from d5test.distributed.optimizers import (
    AVERAGING,
    AWARE,
    COMPRESSED,
    CONSISTENT,
    DISTRIBUTED,
    ELASTIC,
    FEDERATED,
    GROWING,
    ONE_SIDED,
    SERVERS,
)
from d5test.distributed.rules import RULES, Event, furthest, noted, oddity
from d5test.numerics.arithmetic import classes, format_of
from d5test.numerics.bounds import double, forward_bounds, lower_precision
from d5test.numerics.judgement import Judgement, judge
from d5test.reference.collectives import Schedule
from d5test.reference.optimizers import GradientDescent

LAG = "gradients by which a read lagged behind its reader"
WHOLE_STEP = GradientDescent(lr=1.0)
Formula = Callable[[Array, Array], Array]
"""(parameters, gradients) of all ranks, (ranks, n) each -> parameters after a step of length 1."""


def _mixed(w: Array, graph: str = "ring") -> Array:
    """The mean of each rank's row and its neighbours'."""
    rows = [[rank, *GRAPHS[graph](rank, len(w))] for rank in range(len(w))]
    return np.array([w[row].mean(axis=0) for row in rows])


def _joined(w: Array, g: Array) -> Array:
    """The step with the mean gradient, at each rank."""
    return np.broadcast_to(w[0] - g.mean(axis=0), w.shape)


def _mixes(graph: str) -> Formula:
    return lambda w, g: _mixed(w, graph) - g


def _alone(steps: int) -> Formula:
    """So many steps on one's own, then the mean: with the same gradients, wherever it is taken."""
    return lambda w, g: np.broadcast_to((w - steps * g).mean(axis=0), w.shape)


def _silent(g: Array, rank: int) -> Array:
    """Gradients, that of a rank being zero."""
    others = g.copy()
    others[rank] = 0
    return others


def _at_server(w: Array, move: Array) -> Array:
    """Rank 0 has moved; the workers have what they read last, the parameters at the start."""
    return np.concatenate([[w[0] - move], w[1:]])


FORMULAS: Mapping[str, Formula] = {
    **dict.fromkeys((*CONSISTENT, *GROWING), _joined),
    "neighbour_averaging": _mixes("ring"),
    **{f"neighbour_averaging-{graph}": _mixes(graph) for graph in ("torus", "random_regular")},
    "model_averaging": _alone(2),
    **dict.fromkeys(("local_sgd-4", "post_local_sgd"), _alone(4)),
    **dict.fromkeys(SERVERS, lambda w, g: _at_server(w, g[1:].sum(axis=0))),
    **dict.fromkeys(ONE_SIDED, lambda w, g: _at_server(w, g.sum(axis=0))),
}
"""What one step does, or as many as `ModelAveraging` makes between two averages."""
SUSPECTS: Mapping[str, Callable[[Formula, Array, Array], Array]] = {
    "an average over one rank too few": lambda _, w, g: w - g.sum(0) / max(len(g) - 1, 1),
    "an average over one rank too many": lambda _, w, g: w - g.sum(0) / (len(g) + 1),
    "a sum instead of an average": lambda _, w, g: w - g.sum(0),
    "each rank's own gradient": lambda _, w, g: w - g,
    "an average of neighbours' gradients, not of parameters": lambda right, w, g: w - _mixed(g),
    "ranks swapped: gradients in reverse": lambda right, w, g: right(w, g[::-1]),
    "ranks swapped: each has its neighbour's gradient": lambda right, w, g: right(
        w, np.roll(g, 1, axis=0)
    ),
    "the last rank's gradient left out": lambda right, w, g: right(w, _silent(g, -1)),
    "the gradient of rank 0 left out": lambda right, w, g: right(w, _silent(g, 0)),
    "no step at all": lambda _, w, g: w,
}
"""What a wrong result may be, by name: as a formula, given the right one."""


class Probe(RanksInquiry):
    """One case of `Descent` put to one communicator, for a `base` of its own if one is named."""

    def __init__(self, check: str, comm: Runner, case: Case, base: str = "") -> None:
        assert isinstance(case.op, Descent)
        self.op, self.runner = case.op.with_(base=base or case.op.base), comm
        super().__init__(check, comm, replace(case, op=self.op), len(case.inputs) // 2)
        self.minibatches = ByRank(2 * self.size, lambda i: self.arrays[1 + i])

    def descend(self, events: list[Event] | None = None) -> Callable[[], Reduced]:
        """What the communicator's own optimizer makes of the case; also the events of rank 0."""
        w, minibatches = self.arrays[0], self.minibatches
        optimizer = self.runner.optimizers[self.op.optimizer](self.op.base_optimizer(w))
        gradient_of = partial(self.op.gradient, minibatches=minibatches)
        return self.train(optimizer, [w] * self.size, gradient_of, self.op.steps, events)

    def train(
        self,
        optimizer: DistributedOptimizer,
        starts: Iterable[Array],
        gradient_of: Callable[[int], Gradient],
        steps: int,
        events: list[Event] | None = None,
    ) -> Callable[[], Reduced]:
        """Train; a judge finds what the ranks have after so many steps.

        The optimizer's room is no part of that.
        """

        def program(rank: int, size: int, w: Any) -> Schedule:
            schedule = optimizer.train(rank, size, w, gradient_of(rank), steps)
            return schedule if rank > 0 or events is None else noted(schedule, events)

        room, exposed = optimizer.room(self.size), optimizer.exposed
        arrays = [np.concatenate([start, np.zeros(room, start.dtype)]) for start in starts]
        answer = self.attempt(
            lambda: self.runner.run(program, arrays, self.op.order, exposed=exposed), arrays
        )

        def trained() -> Reduced:
            reduced = answer()
            return replace(reduced, results=[x[: len(x) - room] for x in reduced.results])

        return trained


def one_step(comm: Runner, case: Case) -> Judge:
    """After one step with gradients of rank + 1 each rank has exactly what the formula says.

    Averaging begins with different parameters at each rank, the others with the same ones. All
    numbers are multiples of what they are divided by.
    """
    inquiry = Probe("one_step", comm, case, WHOLE_STEP.name)
    name = inquiry.op.optimizer
    averages = name in AVERAGING
    unit = lcm(60, inquiry.size) * (1 + np.arange(inquiry.n) % 5)
    factors = np.arange(1, inquiry.size + 1)[:, None]
    gradients = (unit * factors).astype(inquiry.dtype)
    starts = (unit * factors[::-1] ** 2 if averages else unit + 0 * factors).astype(inquiry.dtype)
    optimizer = comm.optimizers[name](WHOLE_STEP)
    steps = getattr(optimizer, "every", 1)
    answer = inquiry.train(
        optimizer, starts, lambda rank: lambda step, w: gradients[rank].copy(), steps
    )

    def judged() -> Judgement:
        w, g = starts.astype(np.float64), gradients.astype(np.float64)
        right = FORMULAS[name]
        want, got = right(w, g), np.array(answer().results, np.float64)
        if np.array_equal(got, want):
            return RIGHT
        rank, element = (int(i) for i in np.argwhere(got != want)[0])
        details = {
            "where": f"element [{element}] of rank {rank}",
            "got": f"{got[rank, element]:.10g}",
            "want": f"{want[rank, element]:.10g}, from {starts[rank, element]:g} "
            f"with the gradients {', '.join(f'{g:g}' for g in gradients[:, element])}",
        }
        # a suspect divides where the right formula does not: a sum, a quotient, a difference
        roundings = 3 * format_of(inquiry.dtype).u * (np.abs(w) + np.abs(g).sum(axis=0))
        for suspect, wrong in SUSPECTS.items():
            if np.all(np.abs(got - wrong(right, w, g)) <= roundings):
                details["looks like"] = suspect
                break
        raise inquiry.fault("step", "a step is wrong", None, **details)

    return judged


def sequential(comm: Runner, case: Case) -> Judge:
    """As one process with all minibatches, within the bar of the distributed sums.

    For a consistent optimizer that is the base optimizer on the joined minibatch; where replicas
    are averaged, it holds all of them.
    """
    inquiry = Probe("sequential", comm, case)
    op, arrays, answer = inquiry.op, inquiry.arrays, inquiry.descend()

    def judged() -> Judgement:
        (arithmetic,) = classes(inquiry.dtype)
        ours = zip(
            op.sequential(*double(arrays)), forward_bounds(op, arrays, arithmetic), strict=True
        )
        bounds = tuple(replace(bound, value=value) if bound else None for value, bound in ours)
        where = "on the joined minibatch" if op.optimizer in CONSISTENT else "in one process"
        return inquiry.within(
            judge(bounds, answer().results), bounds, f"a rank is not where {op.base} is {where}",
            lambda: lower_precision(op, arrays, None, inquiry.dtype),
        )  # fmt: skip

    return judged


def replay(comm: Runner, case: Case) -> Judge:
    """As one process that takes messages in the order in which rank 0 did, within its bar.

    No worker that reads is further ahead of the slowest than the bound: `got` is the lead.
    """
    inquiry = Probe("replay", comm, case)
    op, arrays, events = inquiry.op, inquiry.arrays, list[Event]()
    answer = inquiry.descend(events)
    noted_by_rank = comm.everywhere(dict.fromkeys(range(inquiry.size), events))

    def judged() -> Judgement:
        results, events = answer().results, noted_by_rank[0]
        ours: Any = DISTRIBUTED[op.optimizer](WHOLE_STEP)
        if odd := oddity(events, inquiry.size, ours.rounds(op.steps)):
            raise inquiry.fault("lost", "a round is lost, or one too many", None, who=odd)
        lead = furthest(events, inquiry.size)
        if lead > ours.bound:
            raise inquiry.fault(
                "stale", "a worker reads too early", None, lead=f"{lead}, at most {ours.bound:g}"
            )
        replayed = Replay(
            optimizer=op.optimizer, base=op.base, steps=op.steps, events=tuple(events)
        )
        (arithmetic,) = classes(inquiry.dtype)
        bounds = forward_bounds(replayed, arrays, arithmetic)
        judgement = inquiry.within(
            judge(bounds, results), bounds, f"a rank is not where {op.base} is in one process",
            lambda: lower_precision(replayed, arrays, None, inquiry.dtype),
        )  # fmt: skip
        return replace(judgement, got=float(lead))

    return judged


def shards(comm: Runner, case: Case) -> Judge:
    """Bit for bit what one server makes that adds the gradients in the order of ranks."""
    inquiry = Probe("shards", comm, case)
    op, answer = inquiry.op, inquiry.descend()

    def judged() -> Judgement:
        w, minibatches = inquiry.arrays[0], inquiry.minibatches
        gradients = [op.gradient(rank, minibatches) for rank in range(inquiry.size)]
        with np.errstate(all="ignore"):
            want = op.by_rule(w, gradients, ())[0]
        for rank, got in enumerate(answer().results):
            if not same(got, want):
                at = int(np.argmax(got != want))
                raise inquiry.fault(
                    "bits", "several servers do not make what one does",
                    where=f"element [{at}] of rank {rank}", got=str(got[at]), want=str(want[at]),
                )  # fmt: skip
        return RIGHT

    return judged


def at_rest(comm: Runner, case: Case) -> Judge:
    """With gradients of zero, and parameters that are alike, nothing moves.

    Weights that are averaged with sum to one, then; whole numbers show it exactly.
    """
    inquiry = Probe("at_rest", comm, case, WHOLE_STEP.name)
    start = (inquiry.size * (1 + np.arange(inquiry.n) % 5)).astype(inquiry.dtype)
    optimizer = comm.optimizers[inquiry.op.optimizer](WHOLE_STEP)
    answer = inquiry.train(
        optimizer, [start] * inquiry.size, lambda _: _no_gradient, 4 * inquiry.op.steps
    )
    what = "it moves parameters that are alike without a gradient"
    return lambda: _equal(inquiry, answer().results, start, "weights", what)


def _equal(inquiry: Probe, results: Any, want: Any, kind: str, what: str) -> Judgement:
    """A fault where the parameters of a rank are not exactly those that are due."""
    for rank, got in enumerate(results):
        if not np.array_equal(got, want):
            at = int(np.flatnonzero(got != want)[0])
            raise inquiry.fault(
                kind, what, where=f"element [{at}] of rank {rank}", got=f"{got[at]:.10g}",
                want=f"{want[at]:.10g}",
            )  # fmt: skip
    return RIGHT


def _no_gradient(step: int, w: Any) -> Any:
    return np.zeros_like(w)


def conserved(comm: Runner, case: Case) -> Judge:
    """Without gradients the sum over all ranks stays, but for roundings.

    In each of k steps each of p ranks adds up at most p terms, divides or multiplies thrice, and
    takes two sums more: p + 5 roundings of numbers that are at most M, since averages stay within
    what is averaged. The bar is k p (p + 5) u M, and as much again for terms of second order.
    """
    inquiry = Probe("conserved", comm, case, WHOLE_STEP.name)
    size, steps = inquiry.size, 4 * inquiry.op.steps
    starts = _apart(inquiry)
    optimizer = comm.optimizers[inquiry.op.optimizer](WHOLE_STEP)
    answer = inquiry.train(optimizer, starts, lambda _: _no_gradient, steps)

    def judged() -> Judgement:
        before, after = (
            np.sum(np.array(x, np.float64), axis=0) for x in (starts, answer().results)
        )
        largest = np.abs(starts).max(axis=0).astype(np.float64)
        bar = 2 * steps * size * (size + 5) * format_of(inquiry.dtype).u * largest
        if not np.all(np.abs(after - before) <= bar):
            at = int(np.argmax(~(np.abs(after - before) <= bar)))
            raise inquiry.fault(
                "sum", "the sum of the ranks' parameters does not stay",
                where=f"element [{at}]", got=f"{after[at]:.10g}", want=f"{before[at]:.10g}",
            )  # fmt: skip
        return RIGHT

    return judged


def _apart(inquiry: Probe) -> Array:
    """Whole numbers that differ by rank and element: (ranks, n)."""
    unit, ranks = 1 + np.arange(inquiry.n) % 5, 1 + np.arange(inquiry.size)
    return (unit * ranks[::-1, None] ** 2).astype(inquiry.dtype)


def consensus(comm: Runner, case: Case) -> Judge:
    """The distance from the mean over ranks shrinks as the graph's spectral gap says.

    |x_k - mean| <= (1 - gap)^k |x_0 - mean|, in the norm over all ranks. It starts along the
    eigenvector that shrinks most slowly, so that nothing is to spare. k roundings of p + 1 terms
    each are granted.
    """
    inquiry = Probe("consensus", comm, case, WHOLE_STEP.name)
    size, steps, name = inquiry.size, inquiry.op.steps, inquiry.op.optimizer
    ours: Any = DISTRIBUTED[name](WHOLE_STEP)
    matrix = mixing(GRAPHS[ours.graph], size)
    values, vectors = np.linalg.eigh(matrix)
    slow = vectors[:, np.argsort(np.abs(values))[-2 if size > 1 else -1]]
    starts = np.outer(slow, 1 + np.arange(inquiry.n) % 5).astype(inquiry.dtype)
    optimizer = comm.optimizers[name](WHOLE_STEP)
    answer = inquiry.train(optimizer, starts, lambda _: _no_gradient, steps)

    def judged() -> Judgement:
        before, after = (_spread(np.array(x, np.float64)) for x in (starts, answer().results))
        norm = float(np.linalg.norm(np.abs(starts).astype(np.float64)))
        roundings = 2 * steps * (size + 1) * size * format_of(inquiry.dtype).u * norm
        bar = (1 - spectral_gap(matrix)) ** steps * before + roundings
        if not after <= bar:
            raise inquiry.fault(
                "consensus", "replicas come together too slowly", None, got=f"{after:.6g}",
                want=f"at most {bar:.6g} after {steps} steps, from {before:.6g}",
            )  # fmt: skip
        return RIGHT

    return judged


def _spread(x: Array) -> float:
    return float(np.linalg.norm(x - x.mean(axis=0)))


def replicas(comm: Runner, case: Case) -> Judge:
    """All ranks have the same bits after each number of steps."""
    inquiry = Probe("replicas", comm, case)
    answer = inquiry.descend()
    return lambda: inquiry.equal(answer().results)


def paid_back(comm: Runner, case: Case) -> Judge:
    """What top-k left out of a step is there after as many steps as there are parameters.

    Only the first gradient is not zero. Each step sends one item more of what is owed, so that
    the parameters end where one step with the mean gradient leads, exactly: all numbers are
    multiples of the number of ranks.
    """
    inquiry = Probe("paid_back", comm, case, WHOLE_STEP.name)
    n, size, dtype = inquiry.n, inquiry.size, inquiry.dtype
    gradients = np.outer(np.arange(1, size + 1), size * (1 + np.arange(n) % 5)).astype(dtype)
    optimizer = comm.optimizers[inquiry.op.optimizer](WHOLE_STEP)
    starts = np.zeros((size, n), dtype)
    answer = inquiry.train(
        optimizer, starts, lambda rank: lambda step, w: gradients[rank] * (step == 0), n
    )
    want = -gradients.mean(axis=0, dtype=np.float64)
    what = "what was left out of a step does not come later"
    return lambda: _equal(inquiry, answer().results, want, "lost", what)


def traffic(comm: Runner, case: Case) -> Judge:
    """The bytes sent are what the optimizer's formula says."""
    inquiry = Probe("traffic", comm, case)
    answer = inquiry.descend()
    optimizer = DISTRIBUTED[inquiry.op.optimizer](WHOLE_STEP)
    w, size, steps = inquiry.arrays[0], inquiry.size, inquiry.op.steps

    def judged() -> Judgement:
        sent = inquiry.sent(answer())
        costs = {"bytes": (sum(t.bytes for t in sent), optimizer.nbytes(size, w, steps))}
        for rank, items in enumerate(optimizer.sent(size, len(w), steps)):
            costs[f"bytes of rank {rank}"] = (sent[rank].bytes, items * w.itemsize)
        return inquiry.costs(costs, f"{type(optimizer).__name__}.nbytes")

    return judged


def staleness(comm: Runner, case: Case) -> Judge:
    """No read lacks more than the bound allows, and no gradient is lost.

    Element `r` is moved by rank `r` alone, by 1 for each of its gradients: the parameters that a
    worker reads are the clocks of all workers as it sees them. The judgement's ratio is the worst
    lag over the bound, `got` the lag.
    """
    inquiry = Probe("staleness", comm, case, WHOLE_STEP.name)
    name, steps, size = inquiry.op.optimizer, 4 * inquiry.op.steps, inquiry.size
    reads: dict[int, list[Array]] = {rank: [] for rank in range(size)}

    def clockwork(rank: int, step: int, w: Any) -> Any:
        reads[rank].append(0 - w)
        return np.eye(size, dtype=w.dtype)[rank]

    optimizer = comm.optimizers[name](WHOLE_STEP)
    starts = np.zeros((size, size), inquiry.dtype)
    answer = inquiry.train(optimizer, starts, lambda rank: partial(clockwork, rank), steps)
    read_by_rank = comm.everywhere(reads)

    def judged() -> Judgement:
        final = -answer().results[0]
        ours: Any = DISTRIBUTED[name](WHOLE_STEP)
        workers, worst = ours.workers(size), 0.0
        for worker, seen in enumerate(read_by_rank):
            for clock, read in enumerate(seen):
                clocks = read[workers]
                lag = float(clock - clocks.min())
                worst = max(worst, lag)
                details = {
                    "who": f"rank {worker}, after {clock} gradients of its own",
                    "read": f"clocks {', '.join(f'{c:g}' for c in clocks)} of the workers",
                    "lag": f"{lag:g}, at most {ours.bound:g}",
                }
                if lag > ours.bound:
                    raise inquiry.fault(
                        "stale", "a read is staler than its bound", None, **details
                    )
                if read[worker] != clock:
                    raise inquiry.fault(
                        "lost", "a worker does not read what it sent", None, **details
                    )
        if np.any(final[workers] != steps):
            counts = ", ".join(f"{count:g}" for count in final[workers])
            raise inquiry.fault(
                "lost", "gradients are lost", None, got=counts, want=f"{steps} each"
            )
        return replace(
            RIGHT,
            ratio=worst / ours.bound if ours.bound else 0.0,
            got=worst,
            bar=float(ours.bound),
        )

    return judged


# with a bound, one-sided access waits by reading
_COUNTED = tuple(name for name in DISTRIBUTED if name != "one_sided-2")
_row = partial(Property, dtypes=("float64", "float32"), one=descent)
# fmt: off
_ROWS = (
    _row("one_step", single(one_step), subjects=(*FORMULAS,)),
    _row(
        "sequential", single(sequential), kind="value",
        subjects=(*CONSISTENT, *GROWING, *AVERAGING, *FEDERATED),
    ),
    _row(
        "replay", single(replay), kind="value", subjects=(*SERVERS, *AWARE, *ELASTIC), least=2,
        measures="rounds by which a worker that reads is ahead of the slowest",
    ),
    _row("shards", single(shards), subjects=("centralised-sharded",)),
    _row("at_rest", single(at_rest), subjects=(*RULES,)),
    _row("conserved", single(conserved), subjects=(*AVERAGING, *ELASTIC)),
    _row(
        "consensus", single(consensus),
        subjects=tuple(name for name in AVERAGING if name.startswith("neighbour")),
    ),
    _row("replicas", single(replicas), subjects=(*CONSISTENT, *GROWING, *COMPRESSED)),
    _row("staleness", single(staleness), subjects=(*SERVERS, *ONE_SIDED), least=2, measures=LAG),
    _row("paid_back", single(paid_back), subjects=("compressed-topk",)),
    _row("traffic", single(traffic), subjects=_COUNTED),
)
DESCENT: Mapping[str, Property] = {row.name: row for row in _ROWS}
"""By name, in the order in which they run."""
