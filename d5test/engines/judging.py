"""Is an engine where the run on one process is, on every rank, and was its plan applied?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import ceil, inf, prod
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Array
from d5test.distributed.checks import INSIDE, raised
from d5test.distributed.gloo import joined, raise_if_left
from d5test.engines.bars import Bars
from d5test.engines.cases import HALF, STEPS
from d5test.engines.catalogue import AXES, words_of
from d5test.engines.dropping import Drops
from d5test.engines.engine import SIDE, Engine, Side, World
from d5test.engines.models import RATE
from d5test.engines.sequential import (
    LOSS,
    NORM,
)
from d5test.engines.trained import Owed, Phase, TooLate, Trained, trained
from d5test.engines.training import Training
from d5test.engines.work import Work
from d5test.names import plural
from d5test.numerics.bounds import Bound
from d5test.outcome.fault import Fault, kind_of_fault

SHOWN = 6
"""Parameters that a message names."""
HELD = {"parameters": "a parameter", "state": "the optimizer's state"}
"""The parts of `Held`, in words."""
Finding = tuple[str, str, dict[str, str]]
"""The kind of a fault, what is wrong, and details."""


def attempted(engine: Engine, subject: Subject, world: World, comm: Any) -> Trained:
    """Have this rank's engine train, in a process group of its own.

    What it raises is a fault. A rank that only waited for one that has left is freed. Where an
    engine cannot do it, nobody leaves before all know: others may still be connecting.
    """
    begun = False
    try:
        with joined(comm):
            begun = True
            made, reason = None, ""
            try:
                made = trained(engine, subject.training, world, subject.resumed)
            except Unsupported as why:
                reason = str(why) or "it gives no reason"
            require_all(subject, comm, reason)
            assert made is not None
            return made
    except (Unsupported, Fault):
        raise
    except SystemExit as error:
        if not begun or subject.threads:  # threads are ended so
            raise
        details = {"rank": str(world.rank), "message": raised(error)}
        raise subject.fault("exception", "a rank raised", details) from None
    except Owed as slip:
        details = {"rank": str(world.rank), "message": str(slip)}
        raise subject.fault("exception", "a method returns something else", details) from None
    except Exception as error:
        raise_if_left(error, comm)
        said = error.why if isinstance(error, TooLate) else error
        if begun and (fault := subject.exception(said, world.rank)):
            raise fault from None
        raise


def require_all(subject: Subject, comm: Any, reason: str) -> None:
    """Raise `Unsupported` if this rank has a reason and all have one; a fault if only some have.

    All ranks call it. The first one that has a reason raises the fault, the others leave.
    """
    reasons = comm.allgather(reason)
    refusing = [rank for rank, each in enumerate(reasons) if each]
    if not refusing:
        return
    if len(refusing) == comm.size:
        raise Unsupported(reason)
    from d5test.distributed.guarded import Left

    first, *_ = refusing
    if comm.rank != first:
        raise Left(f"leaves it to rank {first} to say that the ranks disagree")
    raise subject.fault(
        "exception",
        "it is unsupported on some ranks, and not on others",
        {"ranks": ", ".join(map(str, refusing)), "message": reasons[first]},
    )


@dataclass(frozen=True)
class Subject:
    """An engine, and what it is asked.

    given    its name on the command line
    resumed  the mesh on which it reads a checkpoint, in a case that has one
    options  those of the command line by which its training was drawn
    threads  whether its ranks are threads of this process, so that nothing travels
    """

    given: str
    name: str
    version: str
    training: Training
    mesh: Mapping[str, int]
    resumed: Mapping[str, int] = field(default_factory=dict)
    options: str = ""
    threads: bool = False

    def exception(self, error: Exception, rank: int) -> Fault | None:
        """What a rank raised, as a fault of the engine; `None` if d5test itself raised it.

        It names the innermost line of a user's engine, or else of a framework.
        """
        if words := raised(error) or raised(error, INSIDE):
            details = {"rank": str(rank), "message": words}
            return self.fault("exception", "a rank raised", details)
        return None

    def fault(self, kind: str, what: str, details: Mapping[str, str]) -> Fault:
        """A fault of it; `what` completes the sentence "torch-ddp: ..."."""
        case, dtype = self.training.case, self.training.dtype
        mesh, resumed = words_of(self.mesh), words_of(self.resumed)
        ranks = plural(self.training.ranks, "thread" if self.threads else "rank")
        headline = ", ".join(filter(None, (f"{self.name}: {what} on {ranks}", self.version)))
        again = (
            f"mpirun -n {self.training.ranks} "
            * (not self.threads)
            + "pytest suites/distributed/test_engines.py "
            f"--engine={self.given} --mesh={mesh} "
            + f"--resume-mesh={resumed} " * bool(resumed)
            + f"--dtype={dtype} {self.options}-k {case.name}-{dtype}"
        )
        where = f"{case.name} in {dtype}, mesh {mesh}" + f", then {resumed}" * bool(resumed)
        words = {"case": where, **({"training": case.about} if self.options else {}), **details}
        if case.clip < inf:
            words["clip"] = f"the gradient, to a norm of {self.training.clip:g}"
        words["again"] = again
        return kind_of_fault(kind)("engine", case.name, headline, words)


def judge(subject: Subject, bars: Bars, ranks: Sequence[Trained]) -> float:
    """The largest distance, in units of what is allowed. Raises the `Fault`, all ranks' in one."""
    training = subject.training
    found = [*_shapes(training, ranks)]
    worst = 0.0
    if not found:
        distances = [[*bars.distances(each.trajectory)] for each in ranks]
        worst = max(d for each in distances for step in each for d in step.values())
        found += [*_values(bars, ranks, distances), *_replicas(training, ranks)]
        for phases in zip(*(each.phases for each in ranks), strict=True):
            found += _placements(training, phases)
            found += _shares(training, phases)
            found += () if subject.threads else _volume(bars, phases)
        if training.drops:
            found += [("work", what, details) for what, details in training.drops.odd(RATE)]
    if not found:
        return worst
    (kind, what, details), *others = found
    for _, other, more in others:
        details |= {other: "; ".join(f"{name} {text}" for name, text in more.items())}
    raise subject.fault(kind, what, details)


def with_drops(training: Training, ranks: Sequence[Trained]) -> Training:
    """The same, whose sequential run drops what the ranks have. Raises `Unsupported`."""
    works = [phase.work for each in ranks for phase in each.phases]
    if not all(works):
        raise Unsupported("what its dropout does is not seen")
    steps = [*zip(*works, strict=True)]
    kept = [[work.kept for work in step] for step in steps]
    orders = [[work.order for work in step] for step in steps]
    return replace(training, drops=Drops.of(kept, orders, training.shares, RATE))


def _shapes(training: Training, ranks: Sequence[Trained]) -> Iterator[Finding]:
    """All parameters and buffers are there, in their dtype and shape."""
    for rank, each in enumerate(ranks):
        buffers = {training.buffer(name, rank): s for name, s in training.buffers.items()}
        due = {**training.shapes, **buffers}
        for step, values in enumerate(each.trajectory, 1):
            got = {name: v.shape for name, v in values.items() if name not in (LOSS, NORM)}
            if got != due:
                odd = sorted(n for n in {*got, *due} if got.get(n) != due.get(n))
                yield "shape", "parameters are not those of the model", {
                    "rank": str(rank), "step": str(step),
                    **{n: f"{got.get(n)}, due {due.get(n)}" for n in odd[:SHOWN]},
                }  # fmt: skip
                return
        dtypes = chain.from_iterable(phase.dtypes.items() for phase in each.phases)
        wrong = {n: d for n, d in dtypes if d != training.format(n)}
        if wrong:
            name, dtype = next(iter(wrong.items()))
            yield "shape", "parameters are in another dtype", {"rank": str(rank), name: dtype}
            return


def _values(
    bars: Bars, ranks: Sequence[Trained], distances: Sequence[Sequence[Mapping[str, float]]]
) -> Iterator[Finding]:
    """Losses, norms and parameters are those of the sequential run."""
    for step in range(len(bars.bounds)):
        wrong = {
            (rank, name): d
            for rank, of_rank in enumerate(distances)
            for name, d in of_rank[step].items()
            if not d <= 1
        }
        if not wrong:
            continue
        rank, name = max(wrong, key=lambda at: wrong[at])
        bound, got = bars.bounds[step][name], ranks[rank].trajectory[step][name]
        names = list(dict.fromkeys(name for _, name in wrong))
        at = _furthest(bound, got)
        begun = (ranks[r].trajectory[: step + 1] for r in (rank, 0))
        likely = next(filter(None, map(bars.looks_like, begun)), "")
        if names == [NORM] and np.isnan(got):
            likely = "the engine does not set `norm`"
        yield "value", "it is not where the sequential run is", {
            "step": f"{step + 1} of {len(bars.bounds)}",
            "rank": f"{rank}, of {_numbers({r for r, _ in wrong})} that are too far",
            "what": name,
            "distance": f"{wrong[rank, name]:.4g} times what is allowed",
            "got": repr(float(got[at])),
            "want": f"{float(bound.value[at])!r}, give or take {float(bound.bar[at]):.3g}",
            "wrong": ", ".join(names[:SHOWN]) + ", ..." * (len(names) > SHOWN),
            **({"looks like": likely} if likely else {}),
        }  # fmt: skip
        return


def _furthest(bound: Bound, got: Array) -> tuple[int, ...]:
    error = np.abs(np.nan_to_num(got - bound.value, nan=np.inf)) / bound.bar
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(error)), error.shape))


def _numbers(ranks: set[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, sorted(ranks)))}"


def _replicas(training: Training, ranks: Sequence[Trained]) -> Iterator[Finding]:
    """All ranks have the same bits, but for those of a NaN; of buffers if samples are joined."""
    buffers = training.buffers if training.statistics == "joined" else ()
    for step in range(len(ranks[0].trajectory)):
        of_step = [dict(each.trajectory[step]) for each in ranks]
        for rank, values in enumerate(of_step):
            values |= {name: values[training.buffer(name, rank)] for name in buffers}
        first = of_step[0]
        odd = {
            (rank, name)
            for rank, values in enumerate(of_step)
            for name in first.keys() & values.keys()
            if not np.array_equal(values[name], first[name], equal_nan=True)
        }
        if odd:
            names = sorted({name for _, name in odd})
            yield "disagreement", "ranks have different results", {
                "step": f"{step + 1} of {len(ranks[0].trajectory)}",
                "differing": f"{_numbers({rank for rank, _ in odd})} from 0",
                "of": ", ".join(names[:SHOWN]) + ", ..." * (len(names) > SHOWN),
            }  # fmt: skip
            return


def _placements(training: Training, ranks: Sequence[Phase]) -> Iterator[Finding]:
    """The ranks hold together what the axes of their mesh say, and none holds more than its part.

    A parameter that an axis divides is there once along it; else, as often as the axis is long.
    """
    mesh = ranks[0].mesh
    stateless = training.unused if ranks[0].steps[-1] < HALF else ()
    for what in HELD:
        divisions = {axis: getattr(AXES[axis], what) for axis in mesh}
        of_ranks = [getattr(each.held, what) for each in ranks]
        for name, shape in training.shapes.items():
            numel = prod(shape)
            counts = [each.get(name, 0) for each in of_ranks]
            total, part = numel, list(shape)
            for axis, size in mesh.items():
                side = _side(divisions[axis], name, ranks[0].split)
                if side is not None:
                    part[side] = ceil(part[side] / size)
                elif divisions[axis] != "whole":
                    total *= size
            if what == "state" and name in stateless and not any(counts):
                continue
            most = prod(part)
            if sum(counts) == total and max(counts) <= most:
                continue
            likely = "the plan was not applied: each rank has all of it"
            yield "placement", f"{HELD[what]} is not where it belongs", {
                "what": f"{name} {shape}",
                "held": ", ".join(map(str, counts)) + " elements, by rank",
                "want": f"{total} together, at most {most} on a rank",
                **({"looks like": likely} if set(counts) == {numel} else {}),
            }  # fmt: skip
            return
        if "whole" in divisions.values() and any(map(bool, of_ranks)):
            # of the state a rank may have a piece of each slot, but not all of them whole
            full = [
                rank for rank, each in enumerate(of_ranks)
                if all(each.get(name, 0) >= (prod(shape) if what == "state" else 1)
                       for name, shape in training.shapes.items())
            ]  # fmt: skip
            if full:
                yield "placement", f"{HELD[what]} is not divided", {"all is on": _numbers({*full})}
                return


def _works(ranks: Sequence[Phase]) -> list[tuple[int, tuple[Work, ...]]]:
    """Each step, and what each rank did in it; nothing where it cannot be seen."""
    works = zip(*(each.work for each in ranks), strict=True)
    return list(zip(ranks[0].steps, works, strict=False))


def _shares(training: Training, ranks: Sequence[Phase]) -> Iterator[Finding]:
    """Each sample is trained on once, but once a rank along an axis whose ranks have the same."""
    mesh = ranks[0].mesh
    along = {kind: prod(size for axis, size in mesh.items() if AXES[axis].samples == kind)
             for kind in ("shared", "same")}  # fmt: skip
    for step, works in _works(ranks):
        joined = training.case.samples(step, training.ranks)
        seen = [work.samples for work in works]
        total, most = joined * along["same"], ceil(joined / along["shared"])
        if not any(seen):
            yield "work", "it trains no module of the model: samples are not counted", {
                "step": f"{step + 1} of {STEPS}",
                "owes": "calls of the model's modules; `seen = False` if others compute",
            }  # fmt: skip
            return
        if sum(seen) == total and max(seen) <= most:
            continue
        likely = "each rank trains on all samples" if set(seen) == {joined} else ""
        yield "work", "a rank does not train on its share", {
            "step": f"{step + 1} of {STEPS}",
            "samples": ", ".join(map(str, seen)) + ", by rank",
            "want": f"{total} together, at most {most} on a rank",
            **({"looks like": likely} if likely else {}),
        }  # fmt: skip
        return


def _volume(bars: Bars, ranks: Sequence[Phase]) -> Iterator[Finding]:
    """In each step a rank gives to collectives what its formula says.

    The first step does not count: an engine may get ready in it.
    """
    if bars.rounding and ranks[0].due[-1] is None:
        yield "volume", "it names a rounding, and no formula of its bytes", {
            "rounding": bars.rounding, "owes": "gives(itemsize): see d5test.engines.engine",
        }  # fmt: skip
    if not ranks[0].work:
        return
    formats = ranks[0].work[-1].formats
    if bars.rounding and bars.rounding not in formats:
        yield "volume", "gradients do not travel in the format that it names", {
            "rounding": bars.rounding, "formats": ", ".join(sorted(formats)) or "none",
        }  # fmt: skip
    for at, (step, works) in enumerate(_works(ranks)[1:], 1):
        sent = {rank: work.sent for rank, work in enumerate(works)}
        due = {rank: phase.due[at] for rank, phase in enumerate(ranks)}
        wrong = [rank for rank, bytes_ in sent.items() if due[rank] not in (None, bytes_)]
        if wrong:
            rank = wrong[0]
            yield "volume", "it does not give others what it should", {
                "step": f"{step + 1} of {STEPS}",
                "rank": f"{rank}, of {_numbers(set(wrong))}",
                "bytes": f"{sent[rank]}, due {due[rank]}",
                **({"rounding": bars.rounding} if bars.rounding else {}),
            }  # fmt: skip
            return


def _side(division: str, name: str, split: Mapping[str, Side]) -> int | None:
    """The side of a parameter that the ranks along an axis divide, if they divide any."""
    if division == "rows":
        return 0
    module, _, kind = name.rpartition(".")
    by = split.get(module) if division == "plan" else None
    return None if by is None or (by == "rows" and kind == "bias") else SIDE[by]
