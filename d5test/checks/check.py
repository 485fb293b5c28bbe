"""What a check is, and what all of them share: asking the backend, and judging what it says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Arrays, Case, Operator
from d5test.checks.reasons import Reason, supported, without_reference
from d5test.client.client import Crashed, Feed, Hung, Raised, Result
from d5test.known.failure import Known
from d5test.numerics.arithmetic import EXPLAINED, Arithmetic, classes
from d5test.numerics.bounds import (
    Bound,
    Bounds,
    double,
    forward_bounds,
    gradient_bounds,
    lower_precision,
)
from d5test.numerics.character import explaining_precision
from d5test.numerics.controls import telling
from d5test.numerics.error_model import ErrorModel, attempts
from d5test.numerics.judgement import Judgement, judge, tightest
from d5test.numerics.proof import prove_backward
from d5test.outcome.fault import Evidence, Fault, Subject
from d5test.reference.formulas import computed

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def drawn(operator: Any, dtype: str) -> SearchStrategy[Case]:
    """Ordinary cases of an operator."""
    from d5test.strategies import cases  # Hypothesis is slow to import, and not yet needed

    return cases(operator, dtype)


@dataclass(frozen=True)
class Check:
    """A property that must hold for a backend and a case.

    run     returns a judgement or raises a fault (or Unsupported)
    dtypes  those in which it is asked
    family  the operators of which it is asked: a class of them, or several
    kind    `value`: every cell needs telling cases. `structural`: shapes, bytes, exceptions
    modes   the backend's modes that it is meant for
    cases   the strategy of its cases
    reason  why a cell is not asked, or empty
    draws   at most so many cases (compilations are slow); `None`: as many as the user wants
    every   all of its cases, where they are fixed and none is drawn
    """

    name: str
    run: Callable[[Any, Case], Judgement]
    dtypes: tuple[str, ...] = ("float32",)
    kind: str = "structural"
    modes: tuple[str, ...] = ("eager",)
    cases: Callable[[Any, str], SearchStrategy[Case]] = drawn
    reason: Reason = supported
    draws: int | None = None
    family: type[Operator] | tuple[type[Operator], ...] = Operator
    every: Callable[[type[Operator], str], Sequence[Case]] | None = None

    @property
    def fixed(self) -> bool:
        """Whether the number of cases is not the user's choice."""
        return self.draws is not None or self.every is not None


class Inquiry:
    """One case put to one backend by one check."""

    def __init__(self, check: str, client: Any, case: Case) -> None:
        self.client = client
        self.about = client.about
        self.case = case
        self.subject = Subject(check, case, client.about)
        self.arrays = case.arrays()
        self._plain: tuple[Any, ...] | None = None

    @property
    def row(self) -> Any:
        """The facts of the backend's row."""
        return self.about.rows[self.case.op.name]

    @property
    def wanted(self) -> tuple[int, ...]:
        """The inputs whose gradients are asked for: not those that the framework stops at."""
        return tuple(i for i in self.case.wanted if i not in self.row.stopped)

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The reference's outputs in float64, those that the backend's row returns.

        Without a reference they are the backend's own: what they are asked for is their shapes.
        """
        if self._plain is None and without_reference(type(self.case.op)):
            (result,) = self.ask(self.feed())
            self._plain = result.outputs
        if self._plain is None:
            with np.errstate(all="ignore"):
                self._plain = self.case.op(*double(self.arrays))
        return self._plain[: self.row.outputs]

    @property
    def has_gradient(self) -> bool:
        """Whether the backend can be asked for a gradient that anybody can judge."""
        op = self.case.op
        return not self.row.gradient and (op.differentiable or bool(without_reference(type(op))))

    @property
    def upstream(self) -> Arrays:
        """Random upstream gradients for those outputs."""
        return self.case.upstream(self.outputs)

    def feed(self, arrays: Arrays | None = None, grads: Arrays | None = None, **more: Any) -> Any:
        """The inputs for one call."""
        same_as = tuple(None if t is None else t.same_as for t in self.case.inputs)
        return Feed(self.arrays if arrays is None else arrays, grads, same_as=same_as, **more)

    @property
    def tf32(self) -> bool:
        """Whether the backend may multiply in TF32."""
        return getattr(self.client, "precision", None) == "tf32"

    def classes(self) -> tuple[Arithmetic, ...]:
        """The arithmetic classes of the case's dtype on this backend, tightest first."""
        dtype = self.case.dtype
        return classes(
            dtype,
            flushes=self.row.flushes or bool(self.about.flushes.get(dtype, False)),
            tf32=self.tf32,
            ulps={**self.about.ulps, **self.row.ulps},
            rounded_attributes=self.row.rounded_attributes,
        )

    @property
    def loosest(self) -> Arithmetic:
        """The loosest of them."""
        return self.classes()[-1]

    @property
    def allowed(self) -> Arithmetic:
        """The loosest of them that the backend's row allows."""
        return [a for a in self.classes() if a.name <= self.row.arithmetic][-1]

    @property
    def known(self) -> Known:
        """What is known to be wrong with the backend; nothing of what is no client of ours."""
        found: Known = getattr(self.client, "known", Known())
        return found

    @property
    def models(self) -> tuple[ErrorModel, ...]:
        """What is known of the backend's errors in this case."""
        return self.known.models(self.case)

    def attempts(self) -> tuple[Arithmetic, ...]:
        """The classes, each followed by what error models make of it."""
        return tuple(attempts(self.classes(), self.models))

    def by_any(self, judge: Callable[[Arithmetic], Judgement]) -> Judgement:
        """The judgement in the tightest class, or the first that an error model makes right.

        Raises the fault of the class itself where none does.
        """
        plain, *others = attempts(self.classes()[:1], self.models)
        try:
            return judge(plain)
        except Fault as fault:
            first = fault
        for arithmetic in others:
            try:
                return replace(judge(arithmetic), model=arithmetic.model)
            except Fault:
                continue
        raise first

    def operator(self, arithmetic: Arithmetic) -> Operator:
        """The operator with the formula that is computed."""
        return computed(self.case.op, arithmetic.formula, arithmetic.storage.largest)

    def ask(self, *feeds: Any, claim: str = "returns", reuse: bool = False) -> list[Result]:
        """The backend's results; a crash, a hang or an exception is a fault."""
        evidence = Evidence(tuple(feeds), claim, wanted=self.wanted, reuse=reuse)
        try:
            results = self.client.run(self.case.op, list(feeds), wanted=self.wanted, reuse=reuse)
        except Crashed as crash:
            raise self.subject.fault(
                "crash", "the process died", evidence, how=str(crash)
            ) from None
        except Hung as hang:
            raise self.subject.fault("hang", "no answer", evidence, how=str(hang)) from None
        except Raised as raised:
            if raised.where == "row":
                raise self.subject.fault(
                    "row", "the backend's row is wrong", evidence, raised=str(raised)
                ) from None
            if reason := self.known.refusal(self.case, str(raised)):
                raise Unsupported(f"known failure: {reason}") from None
            raise self.subject.fault(
                "exception", "a valid case raised", evidence,
                raised=f"{raised}\n{dedent(raised.traceback)}".rstrip(),
            ) from None  # fmt: skip
        return list(results)

    def forward_bounds(self, arithmetic: Arithmetic, arrays: Arrays | None = None) -> Bounds:
        """Bars of the outputs that the backend's row returns."""
        arrays = self.arrays if arrays is None else arrays
        return forward_bounds(self.operator(arithmetic), arrays, arithmetic)[: self.row.outputs]

    def gradient_bounds(
        self, arithmetic: Arithmetic, grads: Arrays, arrays: Arrays | None = None
    ) -> Bounds:
        """Bars of the gradients at `wanted`; an input given twice has the sum of both."""
        arrays = self.arrays if arrays is None else arrays
        found = list(gradient_bounds(self.operator(arithmetic), arrays, grads, arithmetic))
        for i, tensor in enumerate(self.case.inputs):
            if tensor is not None and tensor.same_as is not None:
                found[tensor.same_as] = _added(found[tensor.same_as], found[i])
        return tuple(found[i] for i in self.wanted)

    def shaped(self, expected: Bounds, results: Sequence[Any], feeds: tuple[Any, ...]) -> None:
        """Shapes and dtypes come before values.

        A stashed output is in float32 (so ONNX has it) or, as frameworks do, in the dtype under
        test, whose bar it gets either way.
        """
        evidence = Evidence(feeds, "within", (expected,), self.wanted)
        if len(results) != len(expected):
            raise self.subject.fault(
                "shape", "the wrong number of results", evidence,
                got=str(len(results)),
                want=f"{len(expected)}, or outputs={len(results)} if these are the first of them",
            )  # fmt: skip
        for k, (bound, got) in enumerate(zip(expected, results, strict=True)):
            if bound is None or got is None:
                continue
            if got.shape != bound.value.shape:
                raise self.subject.fault(
                    "shape", f"result {k} has the wrong shape", evidence,
                    got=str(got.shape), want=str(bound.value.shape),
                )  # fmt: skip
            want = self.case.dtype if bound.storage is not None else bound.value.dtype.kind
            has = got.dtype.name if bound.storage is not None else got.dtype.kind
            stashed = k in self.case.op.stashed_outputs and has == "float32"
            if has != want and not stashed:
                raise self.subject.fault(
                    "dtype", f"result {k} has the wrong dtype", evidence,
                    got=got.dtype.name, want=str(want),
                )  # fmt: skip

    def shapes_only(self, results: Sequence[Any], feed: Any) -> Judgement:
        """The judgement of shapes and dtypes, or the fault that they are."""

        def judge(arithmetic: Arithmetic) -> Judgement:
            self.shaped(self.forward_bounds(arithmetic), results, (feed,))
            return Judgement(telling=True)

        return self.by_any(judge)

    def judged(
        self,
        bounds: Callable[[Arithmetic], Bounds],
        results: Sequence[Any],
        feeds: tuple[Any, ...],
        *,
        kind: str = "value",
        what: str = "the result is wrong",
        grads: Arrays | None = None,
        reuse: bool = False,
        last: bool = False,
    ) -> Judgement:
        """The judgement of `results`, or the fault that they are.

        With `grads` the results are gradients. With `last`, they belong to the last of `feeds`.
        """
        judgement, expected = self.held(
            bounds, results, feeds, kind=kind, what=what, reuse=reuse, last=last
        )
        tells, void = telling(expected, self.arrays, lambda: self.lowered(grads, judgement))
        return replace(judgement, telling=tells, void=void or judgement.share == 0)

    def held(
        self,
        bounds: Callable[[Arithmetic], Bounds],
        results: Sequence[Any],
        feeds: tuple[Any, ...],
        *,
        kind: str,
        **more: Any,
    ) -> tuple[Judgement, Bounds]:
        """The judgement, not yet whether it tells anything, and the bars that held the results.

        Before a gradient is called wrong, the reference's is proved: raises `WrongReference`.
        """
        try:
            return self._held(bounds, results, feeds, kind=kind, **more)
        except Fault:
            if kind == "gradient":
                prove_backward(self.case, feeds[-1].inputs, feeds[-1].grads)
            raise

    def _held(
        self,
        bounds: Callable[[Arithmetic], Bounds],
        results: Sequence[Any],
        feeds: tuple[Any, ...],
        *,
        kind: str,
        what: str,
        claim: str = "within",
        reuse: bool = False,
        last: bool = False,
    ) -> tuple[Judgement, Bounds]:
        """The judgement, not yet whether it tells anything, and the bars that held the results.

        A result that only a looser class than the allowed one holds is convicted by the bars of
        the class that is allowed: of these are the judgement and the evidence.
        """

        def shaped(arithmetic: Arithmetic) -> Bounds:
            expected = bounds(arithmetic)
            self.shaped(expected, results, feeds)
            return expected

        candidates = self._fitting(bounds, results)
        judgement, expected = tightest(candidates, shaped, results)
        held_by, allowed = judgement.arithmetic, self.allowed
        details = {}
        if judgement.right and held_by > allowed.name:
            expected = bounds(allowed)
            judgement = replace(judge(expected, results, allowed.name), arithmetic=held_by)
            kind, what = "arithmetic", f"is outside class {allowed.name}, inside class {held_by}"
            details["class"] = f"{allowed.name} is allowed: {EXPLAINED[allowed.name]}"
        if judgement.right:
            return judgement, expected
        if kind != "arithmetic":
            explained = explaining_precision(bounds, candidates[-1], results, self.arrays)
            judgement = replace(judgement, explained=explained)
        position = ((),) * (len(feeds) - 1) if last else ()
        evidence = Evidence(feeds, claim, (*position, expected), self.wanted, reuse)
        raise self.subject.fault(kind, what, evidence, judgement, **details)

    def _fitting(
        self, bounds: Callable[[Arithmetic], Bounds], results: Sequence[Any]
    ) -> Sequence[Arithmetic]:
        """The attempts whose formula gives the shapes of the results; the classes if none does."""
        found = self.attempts()
        formulas = {a.formula: a for a in found}
        if len(formulas) == 1:
            return found
        fits = {formula for formula, a in formulas.items() if _fit(bounds(a), results)}
        return [a for a in found if a.formula in fits] or self.classes()

    def gradients(self, result: Result) -> tuple[Any, ...]:
        """The gradients at `wanted`. A framework that reports none says that it is zero."""
        found = result.gradients or ()
        return tuple(
            np.zeros_like(self.arrays[i]) if found[i] is None else found[i] for i in self.wanted
        )

    def lowered(
        self, grads: Arrays | None = None, judgement: Judgement | None = None
    ) -> tuple[Any, ...]:
        """The reference's results in the next lower precision than that which was judged."""
        dtype = self.case.dtype
        if judgement is not None and judgement.model:
            held = (judgement.arithmetic, judgement.model)
            (a,) = (a for a in self.attempts() if (a.name, a.model) == held)
            dtype = min(a.storage, a.primitive, key=lambda fmt: fmt.precision).name
        multiplied = "tf32" if self.tf32 and dtype == "float32" else dtype
        found = lower_precision(self.case.op, self.arrays, grads, multiplied)
        return found if grads is None else tuple(found[i] for i in self.wanted)


def _fit(bounds: Bounds, results: Sequence[Any]) -> bool:
    """Whether the results have the shapes that are expected."""
    return len(bounds) == len(results) and all(
        bound is None or got is None or got.shape == bound.value.shape
        for bound, got in zip(bounds, results, strict=True)
    )


def _added(one: Bound | None, other: Bound | None) -> Bound | None:
    if one is None or other is None:
        return one or other
    value = one.value + other.value
    ulp = 2 * one.storage.u * np.abs(value) if one.storage else 0.0
    return Bound(value, one.bar + other.bar + ulp, one.storage)
