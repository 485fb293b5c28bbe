"""What must hold of a compressor of gradients: what it claims, judged claim by claim.

As `d5test.distributed.checks`, for cases whose operator is `Compression`. Some checks encode and
decode on one rank, and need no communicator; others have all ranks take the mean.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import log, sqrt
from typing import Any

import numpy as np

from d5test.case import Case, Operator, Tensor, dtype_of
from d5test.distributed.checks import ANYTHING, RIGHT, Pick, Property, RanksInquiry, raised, same
from d5test.distributed.communicator import Array, ByRank, Reduced, Runner
from d5test.distributed.judges import Judge, single
from d5test.names import BadName, installed, resolve
from d5test.numerics.arithmetic import format_of
from d5test.numerics.bounds import Bound
from d5test.numerics.judgement import Judgement, judge, rejects
from d5test.outcome.fault import Fault, judgement_in_words
from d5test.reference.collectives import Schedule
from d5test.reference.compressors import COMPRESSORS, Compressing, Compressor

REGIMES = (("normal",), ("heavy",), ("offset",), ("ties",), ("tiny",), ("nonzero",))
NEAR_BUCKETS = (127, 128, 129, 256, 300)
LARGE = 4099
"""Items of a gradient that every compressor has to make shorter."""
SCALES = (1.0, 2.0**-10, 2.0**-30, 2.0**-90)
DRAWS = 400
"""Encodings of one gradient whose mean is compared with it."""
FALSE_ALARM = 1e-9
"""The chance that an unbiased compressor is accused by one case."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Compression(Operator):
    """Each rank has `steps` gradients, one behind the other in its input of steps * n items.

    compressor  a name in `COMPRESSORS`, `module:Name` or `./file.py:Name`
    order       which order of delivery virtual ranks have
    """

    domain = "d5test"
    compressor: str
    steps: int = 3
    order: int = 0

    def forward(self, *gradients: Any) -> Any:
        """What compression is to come near: the mean over ranks."""
        return np.mean(gradients, axis=0)


@dataclass(frozen=True, kw_only=True)
class Claim(Property):
    """A check of a compressor. `asks` says whether its claims are such that it is asked."""

    subjects: tuple[str, ...] = ()
    asks: Callable[[Compressor], bool] = lambda compressor: True

    def done_in(self, comm: Any, subject: str) -> tuple[str, ...]:
        """All of its dtypes, wherever schedules run."""
        return self.dtypes if hasattr(comm, "run") else ()


@cache
def compressing(name: str) -> Compressing:
    """What makes the compressor of this name. Raises `BadName`."""
    make: Any = resolve("compressor", name, COMPRESSORS)
    if name not in COMPRESSORS and not (isinstance(make, type) and issubclass(make, Compressor)):
        place = f"{Compressor.__module__}.{Compressor.__name__}"
        raise BadName(f"compressor {name!r} is not a subclass of {place}")
    return make  # type: ignore[no-any-return]


def made(name: str) -> Compressor:
    """The compressor of this name. Raises `BadName`, also where it cannot be made."""
    make = compressing(name)
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - whatever a stranger's class raises
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadName(f"compressor {name!r} cannot be made: {words}") from None


@dataclass(frozen=True)
class Encoded:
    """(n,): a gradient with what was owed; its payload; and (n,): what that is decoded to."""

    x: Array
    payload: Array
    decoded: Array


@dataclass(frozen=True)
class Averaged:
    """What came of `steps` means over `p` ranks.

    applied  of each rank (steps, n): the means
    owed     (p, steps, n): what each had to send, residual included
    kept     (p, steps, n): the residuals afterwards; zeros without feedback
    sent     bytes of all ranks
    """

    applied: list[Array]
    owed: Array
    kept: Array
    sent: int


class CompressionInquiry(RanksInquiry):
    """One case of `Compression`."""

    def __init__(self, check: str, comm: Runner, case: Case) -> None:
        super().__init__(check, comm, case, len(case.inputs))
        assert isinstance(case.op, Compression)
        self.op, self.runner = case.op, comm
        self.compressor = made(self.op.compressor)
        self.n //= self.op.steps
        self.gradients = ByRank(
            len(case.inputs), lambda rank: self.arrays[rank].reshape(self.op.steps, self.n)
        )
        self.format, self.u = format_of(self.dtype), format_of(self.dtype).u

    def start(self, rank: int, seed: int | None = None) -> Any:
        """What a rank remembers at first."""
        number = self.case.seed if seed is None else seed
        return self.compressor.start(self.n, dtype_of(self.dtype), rank, number)

    def kept(self, state: Any) -> Array:
        """What is owed: zero, if nothing is claimed to be."""
        if not self.compressor.feedback:
            return np.zeros(self.n, dtype_of(self.dtype))
        residual = np.array(self.compressor.residual(state))
        if (residual.shape, residual.dtype) != ((self.n,), dtype_of(self.dtype)):
            raise self.fault(
                "shape", "a residual is no gradient",
                got=f"{residual.dtype} {residual.shape}", want=f"{self.dtype} ({self.n},)",
            )  # fmt: skip
        return residual

    def encoded(self, g: Array, state: Any) -> Encoded:
        """A gradient there and back. What is no payload is a fault."""
        x, payloads = g + self.kept(state), []

        def call() -> Reduced:
            payload = self.compressor.encode(g, state)
            payloads.append(payload)
            if getattr(payload, "dtype", None) != np.uint8 or payload.ndim != 1:
                got = f"{type(payload).__name__} {getattr(payload, 'dtype', '')}"
                raise self.fault("payload", "a payload is no flat array of bytes", got=got)
            decoded = self.compressor.decode(payload.copy(), self.n, g.dtype)
            return Reduced((np.asarray(decoded),))

        (decoded,) = self.attempt(call, [g], here=[0])().results
        return Encoded(x, payloads[0], decoded)

    def stream(self, rank: int = 0) -> Iterator[Encoded]:
        """The gradients of a rank, one after the other."""
        state = self.start(rank)
        for g in self.gradients[rank]:
            yield self.encoded(g, state)

    def claimed(self, x: Array) -> Bound:
        """`x`, give or take the error that is claimed."""
        error = np.asarray(self.compressor.error(x), np.float64)
        if error.shape != x.shape:
            raise self.fault(
                "shape", "the errors claimed are not those of a gradient",
                got=str(error.shape), want=str(x.shape),
            )  # fmt: skip
        return self.bound(x, error)

    def bound(self, value: Array, bar: Array) -> Bound:
        """A value and its bar."""
        return Bound(np.asarray(value, np.float64), bar, self.format)

    def held(self, bound: Bound, got: Array, wrong: str) -> Judgement:
        """The judgement of a result, or the fault that it is outside of its bar."""
        judgement = judge((bound,), [got])
        if not judgement.right:
            words = judgement_in_words(judgement, self.dtype)
            words["worst"] = words["worst"].removesuffix(" of result 0")
            raise self.fault("value", wrong, judgement, **words)
        return judgement

    def tried(self, judge: Judge) -> Judge:
        """The same, but what a stranger's formula raises is a fault."""

        def tried() -> Judgement:
            try:
                return judge()
            except Fault:
                raise
            except Exception as error:
                words = raised(error)
                if not words:
                    raise
                raise self.fault("exception", "a compressor raised", message=words) from None

        return tried

    def averaged(self) -> Callable[[], Averaged]:
        """The ranks take the mean of each step's gradients; a judge finds what came of it."""
        op, n, here = self.op, self.n, dict[int, list[Array]]()

        def program(rank: int, size: int, x: Array) -> Schedule:
            state = self.start(rank)
            kept = here[rank] = [self.kept(state)]
            for step in range(op.steps):
                yield from self.compressor.mean(rank, size, x[step * n : (step + 1) * n], state)
                kept.append(self.kept(state))

        answer = self.attempt(lambda: self.runner.run(program, self.arrays, op.order), self.arrays)
        kept_by_rank = self.runner.everywhere(here)

        def averaged() -> Averaged:
            kept, reduced = np.array(kept_by_rank), answer()
            owed = np.array(self.gradients) + kept[:, :-1]
            sent = sum(t.bytes for t in self.sent(reduced))
            applied = [x.reshape(op.steps, n) for x in reduced.results]
            return Averaged(applied, owed, kept[:, 1:], sent)

        return averaged


def compression(
    name: str, dtype: str, sizes: Sequence[int], pick: Pick, *, alone: bool = False
) -> Case:
    """A few gradients at each rank, or at one that is `alone`: short, and near the buckets."""
    size = 1 if alone else pick(sizes)
    n, steps = pick(pick((range(6), range(71), range(71), NEAR_BUCKETS))), pick(range(1, 6))
    op = Compression(compressor=name, steps=steps, order=pick(ANYTHING))
    tensor = Tensor((steps * n,), dtype, pick(REGIMES))
    return Case(op, (tensor,) * size, seed=pick(ANYTHING))


def faithful(comm: Runner, case: Case) -> Judge:
    """What is decoded is off by no more than is claimed; the claim excludes the negative."""
    inquiry = CompressionInquiry("faithful", comm, case)

    def judged() -> Judgement:
        worst, tells = RIGHT, []
        for sent in inquiry.stream():
            bound = inquiry.claimed(sent.x)
            got = inquiry.held(bound, sent.decoded, "what is decoded is further off than claimed")
            worst = max(worst, got, key=lambda j: j.ratio)
            tells.append(rejects((bound,), [-sent.x]))
        return replace(worst, telling=all(tells))

    return inquiry.tried(judged)


def unbiased(comm: Runner, case: Case) -> Judge:
    """The mean of many encodings of one gradient is the gradient.

    Each error lies within what is claimed, E. So the mean of N of them is off by more than
    E sqrt(2 log(2 n / a) / N) in one of n items with a chance of at most a (Hoeffding 1963,
    theorem 2). Roundings are no part of that.
    """
    inquiry = CompressionInquiry("unbiased", comm, case)
    g, first = inquiry.gradients[0][0], case.seed * DRAWS

    def judged() -> Judgement:
        claimed, total = inquiry.claimed(g), np.zeros(inquiry.n)
        for draw in range(DRAWS):
            decoded = inquiry.encoded(g, inquiry.start(0, first + draw)).decoded
            inquiry.held(claimed, decoded, "what is decoded is further off than claimed")
            total += decoded
        error, exact = claimed.bar, claimed.value
        chance = error * sqrt(2 * log(2 * max(inquiry.n, 1) / FALSE_ALARM) / DRAWS)
        roundings = 8 * inquiry.u * (np.abs(exact) + error) + inquiry.format.smallest_subnormal
        bound = inquiry.bound(exact, chance + roundings)
        judgement = inquiry.held(bound, total / DRAWS, f"the mean of {DRAWS} encodings is biased")
        tells = rejects((bound,), [exact + error / 2])
        return replace(judgement, telling=tells, void=not tells)

    return inquiry.tried(judged)


def telescoping(comm: Runner, case: Case) -> Judge:
    """All means, and the mean of what is still owed, are the sum of the mean gradients.

    That holds exactly, whatever is lost in a step, but for roundings: one where the gradient is
    added to what is owed, x, one where what is sent is taken from it, and p + 1 where p ranks'
    payloads, of size |x| + |residual| at most, are added up and divided.
    """
    inquiry = CompressionInquiry("telescoping", comm, case)
    answer = inquiry.averaged()

    def judged() -> Judgement:
        averaged, gradients = answer(), np.array(inquiry.gradients, np.float64)
        owed, kept = np.abs(averaged.owed, dtype=float), np.abs(averaged.kept, dtype=float)
        whole = gradients.mean(axis=0).sum(axis=0)
        left = averaged.kept[:, -1].astype(np.float64).mean(axis=0)
        size, steps = len(gradients), len(owed[0])
        bar = (size + 3) * inquiry.u * (owed + kept).mean(axis=0).sum(axis=0)
        bar += (size + 3) * steps * inquiry.format.smallest_subnormal
        bound = inquiry.bound(whole, bar)
        worst, telling = Judgement(), rejects((bound,), [whole - left])
        for applied in averaged.applied:
            got = applied.astype(np.float64).sum(axis=0) + left
            judgement = inquiry.held(bound, got, "what is sent and owed is not what there was")
            worst = max(worst, judgement, key=lambda j: j.ratio)
        return replace(worst, telling=telling, void=not telling)

    return inquiry.tried(judged)


def mean(comm: Runner, case: Case) -> Judge:
    """All ranks have the same bits, near the mean of what they had, for the bytes of the formula.

    Near: off by the mean of the errors that are claimed, and the roundings of the mean.
    """
    inquiry = CompressionInquiry("mean", comm, case)
    answer = inquiry.averaged()

    def judged() -> Judgement:
        averaged = answer()
        inquiry.equal([applied.reshape(-1) for applied in averaged.applied])
        compressor, size = inquiry.compressor, len(averaged.owed)
        worst = RIGHT
        for step, got in enumerate(averaged.applied[0]):
            each = [inquiry.claimed(x) for x in averaged.owed[:, step]]
            error = np.mean([bound.bar for bound in each], axis=0)
            exact = np.array([bound.value for bound in each])
            reach = np.abs(exact).mean(axis=0) + error
            roundings = (size + 1) * (inquiry.u * reach + inquiry.format.smallest_subnormal)
            bound = inquiry.bound(exact.mean(axis=0), error + roundings)
            judgement = inquiry.held(bound, got, "a mean is further off than is claimed")
            worst = max(worst, judgement, key=lambda j: j.ratio)
        want = sum(compressor.sent(list(xs)) for xs in averaged.owed.swapaxes(0, 1))
        inquiry.costs({"bytes": (averaged.sent, want)}, f"{type(compressor).__name__}.sent")
        return replace(worst, telling=True)

    return inquiry.tried(judged)


def wire(comm: Runner, case: Case) -> Judge:
    """Payloads have the bytes of the formula, by which a long gradient becomes shorter."""
    inquiry = CompressionInquiry("wire", comm, case)
    compressor, formula = inquiry.compressor, f"{type(inquiry.compressor).__name__}.nbytes"

    def judged() -> Judgement:
        for sent in inquiry.stream():
            size = (len(sent.payload), compressor.nbytes(sent.x))
            inquiry.costs({"bytes of a payload": size}, formula)
        (long,) = Case(case.op, (Tensor((LARGE,), inquiry.dtype),), case.seed).arrays()
        assert long is not None
        # what has a threshold of its own may send all that is above it
        sizes = [compressor.nbytes(long * long.dtype.type(scale)) for scale in SCALES]
        if min(sizes) >= long.nbytes:
            raise inquiry.fault(
                "volume", "it does not compress", of=f"{LARGE} normal numbers, of any scale",
                got=f"{min(sizes)} bytes", want=f"less than {long.nbytes}", formula=formula,
            )  # fmt: skip
        return RIGHT

    return inquiry.tried(judged)


def special(comm: Runner, case: Case) -> Judge:
    """Zeros are decoded to zeros, one huge number within the claim; NaN and infinity as stated."""
    inquiry = CompressionInquiry("special", comm, case)
    compressor, n = inquiry.compressor, inquiry.n
    dtype = dtype_of(inquiry.dtype)
    at = case.seed % max(n, 1)

    def one(value: float) -> Array:
        g = np.ones(n, dtype)
        g[at : at + 1] = value
        return g

    def judged() -> Judgement:
        zeros = inquiry.encoded(np.zeros(n, dtype), inquiry.start(0)).decoded
        if np.any(zeros != 0):
            raise inquiry.fault("special", "zeros are not decoded to zeros", got=str(zeros))
        huge = one(inquiry.format.largest / 4)
        decoded = inquiry.encoded(huge, inquiry.start(0)).decoded
        inquiry.held(inquiry.claimed(huge), decoded, "one huge number is further off than claimed")
        for value in (np.nan, np.inf, -np.inf) if n else ():
            if compressor.keeps_nonfinite:
                _kept(inquiry, one(value))
            else:
                _refused(inquiry, one(value))
        return RIGHT

    return inquiry.tried(judged)


def _kept(inquiry: CompressionInquiry, g: Array) -> None:
    decoded = inquiry.encoded(g, inquiry.start(0)).decoded
    lost = ~np.isfinite(g) & ~np.where(np.isnan(g), np.isnan(decoded), decoded == g)
    if np.any(lost):
        at = int(np.argmax(lost))
        raise inquiry.fault(
            "special", "what is not finite is not kept", element=f"[{at}] of {inquiry.n}",
            got=str(decoded[at]), want=str(g[at]),
        )  # fmt: skip


def _refused(inquiry: CompressionInquiry, g: Array) -> None:
    state = inquiry.start(0)
    inquiry.encoded(np.ones_like(g), state)
    before = inquiry.kept(state)
    try:
        inquiry.compressor.encode(g, state)
    except ValueError:
        if not same(inquiry.kept(state), before):
            raise inquiry.fault("special", "a gradient that is refused is remembered") from None
        return
    bad = str(g[~np.isfinite(g)][0])
    raise inquiry.fault("accepted", "what is not finite is not refused", given=bad)


def independence(comm: Runner, case: Case) -> Judge:
    """A rank sends the same bits whatever other ranks do, and again from the same seed."""
    inquiry = CompressionInquiry("independence", comm, case)

    def judged() -> Judgement:
        alone = [sent.payload for sent in inquiry.stream()]
        again = [sent.payload for sent in inquiry.stream()]
        # a rank with other gradients goes on in between
        other, state = inquiry.start(1), inquiry.start(0)
        beside = []
        for g in inquiry.gradients[0]:
            inquiry.encoded(1 - 2 * g[::-1], other)
            beside.append(inquiry.encoded(g, state).payload)
        repeated = {
            "the same seed makes other payloads": again,
            "a rank's payloads depend on what another rank sends": beside,
        }
        for what, payloads in repeated.items():
            for step, (payload, first) in enumerate(zip(payloads, alone, strict=True)):
                if not np.array_equal(payload, first):
                    raise inquiry.fault("state", what, step=f"{step + 1} of {len(alone)}")
        return RIGHT

    return inquiry.tried(judged)


def projection(comm: Runner, case: Case) -> Judge:
    """Columns P are orthonormal, and what is decoded is what they make of the gradient: P P' M.

    Of r columns of length m that Householder's QR has made, each item of P' P is off by a small
    multiple of m r u (Higham 2002, theorem 19.4). The two products are off by (m + r) u times the
    norm of a column of M, which is at most sqrt(m) max |M|, and the sum of a row of |P|, at most
    sqrt(r).
    """
    inquiry = CompressionInquiry("projection", comm, case)
    compressor, n = inquiry.compressor, inquiry.n

    def judged() -> Judgement:
        worst, tells = RIGHT, []
        for sent in inquiry.stream():
            p = compressor.orthogonal(sent.payload, n, sent.x.dtype).astype(np.float64)
            rows, columns = p.shape
            width = -(-n // rows)
            identity, gram = np.eye(columns), p.T @ p
            roundings = 8 * rows * columns * inquiry.u
            bound = inquiry.bound(identity, np.full_like(gram, roundings))
            got = inquiry.held(bound, gram, "columns are not orthonormal")
            worst = max(worst, got, key=lambda j: j.ratio)
            matrix = np.pad(sent.x.astype(np.float64), (0, rows * width - n)).reshape(rows, width)
            want = (p @ (p.T @ matrix)).reshape(-1)[:n]
            largest = np.max(np.abs(matrix), initial=0)
            sizes = inquiry.u * rows * largest + inquiry.format.smallest_subnormal
            bound = inquiry.bound(want, np.full(n, 2 * (rows + columns) * sizes))
            got = inquiry.held(bound, sent.decoded, "what is decoded is no projection")
            worst = max(worst, got, key=lambda j: j.ratio)
            tells.append(rejects((bound,), [np.zeros(n)]))
        return replace(worst, telling=all(tells))

    return inquiry.tried(judged)


_alone = partial(compression, alone=True)
_row = partial(Claim, dtypes=("float64", "float32"), one=_alone)
_ROWS = (
    _row("faithful", single(faithful), kind="value", asks=lambda c: not c.factors),
    _row("unbiased", single(unbiased), kind="value", asks=lambda c: c.unbiased),
    _row("projection", single(projection), kind="value", asks=lambda c: c.factors),
    _row("wire", single(wire)),
    _row("special", single(special)),
    _row("independence", single(independence)),
    _row(
        "telescoping",
        single(telescoping),
        kind="value",
        one=compression,
        asks=lambda c: c.feedback,
    ),
    _row("mean", single(mean), one=compression),
)
COMPRESSION: Mapping[str, Claim] = {row.name: row for row in _ROWS}
"""By name, in the order in which they run."""


def asked(row: Claim, names: Sequence[str]) -> list[str]:
    """The compressors, of those that are named or of all, of which a check is asked."""
    every = names or (*COMPRESSORS, *installed("compressor"))
    return [name for name in every if row.asks(made(name))]
