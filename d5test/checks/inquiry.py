"""One case, put to one backend: asking it, and judging what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Arrays, Case, Operator, Tensor
from d5test.checks.check import without_reference
from d5test.checks.explanation import Wrong, explained, fit
from d5test.client.messages import FAILURES, TO_A_ROW, Crashed, Feed, Hung, Raised, Result
from d5test.known.failure import Known
from d5test.numerics.arithmetic import EXPLAINED, Arithmetic, attempts, classes
from d5test.numerics.bounds import (
    Bound,
    Bounds,
    double,
    forward_bounds,
    gradient_bounds,
    lower_precision,
)
from d5test.numerics.judgement import (
    Judgement,
    judge,
    pairs,
    share_of,
    telling,
    tightest,
)
from d5test.numerics.proof import prove_backward
from d5test.numerics.rounding import ALONE, Rounding, rounding_of
from d5test.outcome.fault import AT, Evidence, Fault, Subject
from d5test.outcome.tally import Inapplicable, LeftToOthers
from d5test.reference.formulas import computed

TRANSFERS = frozenset({"put", "refill"})
"""Steps of a backend that compute nothing: no function of the framework is accused of them."""
FAR = 16
"""Bars of the allowed class beyond which the message advises to look for a fault: no verdict."""
ROUNDED = "the result is right if they are known to 32 bits, as ONNX stores them"
"""Of a function with 0.01 where ONNX has the float32 next to it, judged in float64."""


class Inquiry:
    """One case put to one backend by one check."""

    def __init__(self, check: str, client: Any, case: Case) -> None:
        self.client = client
        self.about = client.about
        self.case = case
        self.advice = getattr(client, "advice", TO_A_ROW)
        self.subject = Subject(check, case, client.about, self.advice)
        self.arrays = case.arrays()
        self.tf32 = getattr(client, "precision", None) == "tf32"  # whether it may multiply so
        self.known: Known = getattr(client, "known", Known())  # nothing of no client of ours
        self._computed: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self._answered: dict[int, tuple[Any, Result | Exception]] = {}

    @property
    def row(self) -> Any:
        """The facts of the backend's row."""
        return self.about.row_of(self.case)

    @property
    def wanted(self) -> tuple[int, ...]:
        """The inputs whose gradients are asked for: not those that the framework stops at."""
        return tuple(i for i in self.case.wanted if i not in self.row.stopped)

    @cached_property
    def outputs(self) -> tuple[Any, ...]:
        """The reference's outputs in float64, those that the backend's row returns.

        Without a reference they are the backend's own: what they are asked for is their shapes.
        """
        if without_reference(type(self.case.op)):
            (result,) = self.ask(self.feed())
            return result.outputs[: self.row.outputs]
        op = self.case.op
        with np.errstate(all="ignore"):
            return op(*(self.arrays if op.typed else double(self.arrays)))[: self.row.outputs]

    @property
    def has_gradient(self) -> bool:
        """Whether the backend can be asked for a gradient that anybody can judge."""
        op = self.case.op
        return not self.row.gradient and (op.differentiable or bool(without_reference(type(op))))

    @property
    def flows(self) -> bool:
        """Whether there is a gradient here, in the reference and in the backend's row."""
        if self.row.gradient or not self.case.op.differentiable:
            return False
        with suppress(Inapplicable):
            return bool(self.upstream)
        return False

    @cached_property
    def upstream(self) -> Arrays:
        """Upstream gradients for those outputs. Raises `Inapplicable` where nothing flows."""
        grads = self.case.upstream(self.outputs)
        if self.case.op.typed and not (self.wanted and any(dy is not None for dy in grads)):
            raise Inapplicable("no gradient flows between these dtypes")
        return grads

    def feed(self, arrays: Arrays | None = None, grads: Arrays | None = None, **more: Any) -> Any:
        """The inputs for one call."""
        same_as = tuple(None if t is None else t.same_as for t in self.case.inputs)
        return Feed(self.arrays if arrays is None else arrays, grads, same_as=same_as, **more)

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

    def attempts(self) -> tuple[Arithmetic, ...]:
        """The classes, each followed by what error models make of it."""
        return tuple(attempts(self.classes(), self.known.models(self.case)))

    def by_any(self, judge: Callable[[Arithmetic], Judgement]) -> Judgement:
        """The judgement in the class of the row, or the first that an error model makes right.

        Raises what the class itself raises where none does.
        """
        plain, *others = attempts([self.allowed], self.known.models(self.case))
        try:
            return judge(plain)
        except (Fault, Inapplicable):
            for arithmetic in others:
                with suppress(Fault, Inapplicable):
                    return replace(judge(arithmetic), model=arithmetic.model)
            raise

    def left_to(self, check: str, wrong: str) -> Inapplicable:
        """What is raised where a plain call is `wrong`, which `check` says, once for all.

        Of a known failure, and of what an error model may explain, nobody needs to say it. In 16
        bits it is `low_precision` that judges values.
        """
        if check != "untouched" and self.case.dtype not in ("float64", "float32"):
            check = "low_precision"
        left = LeftToOthers(wrong, check, self.case)
        masked = self.known.covers(self.case, "forward", "gradient", "low_precision", "degenerate")
        return Inapplicable(str(left)) if masked or self.known.models(self.case) else left

    def operator(self, arithmetic: Arithmetic) -> Operator:
        """The operator with the formula that is computed, or documented."""
        formula = arithmetic.formula or self.row.contract
        return computed(self.case.op, formula, arithmetic.storage.largest)

    def ask(
        self,
        *feeds: Any,
        claim: str = "returns",
        reuse: bool = False,
        ahead: Sequence[Callable[[Arithmetic], object]] = (),
    ) -> list[Result]:
        """The backend's results; a crash, a hang or an exception is a fault.

        ahead  what will be needed, by class: the tightest one's is computed beside the backend

        `Inapplicable` where the backend returns another shape than its upstream gradient's.
        """
        if len(feeds) == 1 and id(feeds[0]) in self._answered:
            _, answer = self._answered.pop(id(feeds[0]))
            if isinstance(answer, Exception):
                raise answer
            return [answer]

        def compute() -> None:
            with suppress(Exception):  # it is raised where the bars are needed
                for bounds in ahead:
                    bounds(self.classes()[0])

        evidence = Evidence(tuple(feeds), claim, wanted=self.wanted, reuse=reuse)
        fault = partial(self.subject.fault, evidence=evidence)
        try:
            results = self.client.run(
                self.case.op, list(feeds), wanted=self.wanted, reuse=reuse, form=self.case.form,
                meanwhile=compute,
            )  # fmt: skip
        except Crashed as crash:
            if reason := self.known.refusal(self.case, str(crash)):
                raise Unsupported(f"known failure: {reason}") from None
            raise fault("crash", "the process died", how=str(crash)) from None
        except Hung as hang:
            raise fault("hang", "no answer", how=str(hang)) from None
        except Raised as raised:
            if raised.where == "fit":
                what = f"{self.case.op.name} returns another shape"
                raise self.left_to("forward", what) from None
            if raised.where != "row" and (reason := self.known.refusal(self.case, str(raised))):
                raise Unsupported(f"known failure: {reason}") from None
            raise self.raised(raised, evidence) from None
        return list(results)

    def ask_together(
        self, *feeds: Any, ahead: Sequence[Callable[[Arithmetic], object]] = ()
    ) -> None:
        """Have calls that do not belong together answered in one request, which costs less.

        `ask` has the answer to each then. Each has the time that it would have alone. Where one
        raises, each is asked by itself; where none raises the like alone, all of them do.
        """
        answers: list[Result | Exception] = []
        try:
            with self.client.answering_within(len(feeds) * self.client.timeout):
                answers += self.ask(*feeds, ahead=ahead)
        except (Fault, Unsupported, Inapplicable) as together:
            for feed in feeds:
                answers.append(self._alone(feed))
                if isinstance(answers[-1], type(together)):
                    break
            else:
                raise together from None
        self._answered = {id(f): (f, answer) for f, answer in zip(feeds, answers, strict=False)}

    def _alone(self, feed: Any) -> Result | Exception:
        try:
            (result,) = self.ask(feed)
        except (Fault, Unsupported, Inapplicable) as raised:
            return raised
        return result

    def raised(
        self, raised: Raised, evidence: Evidence, kind: str = "exception",
        what: str = "valid inputs raise an exception",
    ) -> Fault:  # fmt: skip
        """The fault that is an exception: of `kind` if it may be the framework's."""
        fault = partial(self.subject.fault, evidence=evidence)
        if raised.where == "row":
            what = self.advice.unreadable
            if raised.place and self.advice is TO_A_ROW:
                what = f"the backend's row or its {raised.place} is wrong"
            return fault("row", what, raised=raised.message)
        details: dict[str, Any] = {"raised": f"{raised}\n{dedent(raised.traceback)}".rstrip()}
        if raised.place or raised.where in TRANSFERS:
            step = "row" if raised.where == "call" else raised.where
            if kind == "exception":
                what = f"the backend's {step} raised {raised.type}"
                what += f" at {Path(raised.place).name}" if raised.place else ""
            details[AT] = f"{raised.place or raised.where}: {raised.type}"
        if raised.where not in TRANSFERS and (not raised.place or raised.where == "call"):
            details |= self.advice.on(raised.type)
        return fault(kind, what, **details)

    def fault(
        self,
        kind: str,
        what: str,
        feeds: tuple[Any, ...],
        claim: str,
        judgement: Judgement | None = None,
        expected: tuple[Bounds, ...] = (),
        **details: str,
    ) -> Fault:
        """The fault that calls with `feeds` break a claim (see `Evidence`)."""
        evidence = Evidence(feeds, claim, expected, self.wanted)
        return self.subject.fault(kind, what, evidence, judgement, **details)

    def evidence(
        self,
        feeds: tuple[Any, ...],
        expected: Bounds,
        *,
        claim: str = "within",
        reuse: bool = False,
        last: bool = False,
    ) -> Evidence:
        """What is expected of the first of `feeds`, or with `last` of the last of them."""
        position = ((),) * (len(feeds) - 1) if last else ()
        return Evidence(feeds, claim, (*position, expected), self.wanted, reuse)

    def forward_bounds(self, arithmetic: Arithmetic, arrays: Arrays | None = None) -> Bounds:
        """Bars of the outputs that the backend's row returns."""
        data = (self.arrays if arrays is None else arrays,)
        bounds: Bounds = self.once(forward_bounds, arithmetic, data)
        return bounds[: self.row.outputs]

    def gradient_bounds(
        self, arithmetic: Arithmetic, grads: Arrays, arrays: Arrays | None = None
    ) -> Bounds:
        """Bars of the gradients at `wanted`."""
        data = (self.arrays if arrays is None else arrays, grads)
        return self.at_wanted(self.once(gradient_bounds, arithmetic, data))

    def once(
        self, function: Callable[..., Any], arithmetic: Arithmetic, data: tuple[Arrays, ...]
    ) -> Any:
        """What a function of the operator makes of these very arrays, which nobody writes to."""
        which = (function, id(arithmetic), *map(id, data))
        if which not in self._computed:
            made = function(self.operator(arithmetic), *data, arithmetic)
            self._computed[which] = (arithmetic, data), made  # kept, so that no id is used again
        return self._computed[which][1]

    def at_wanted(self, every: Bounds) -> Bounds:
        """Bars of what flows to the inputs at `wanted`; one given twice has the sum of both."""
        bounds = list(every)
        for i, tensor in enumerate(self.case.inputs):
            if tensor is not None and tensor.same_as is not None:
                bounds[tensor.same_as] = _added(bounds[tensor.same_as], bounds[i])
        return tuple(bounds[i] for i in self.wanted)

    def shaped(
        self,
        expected: Bounds,
        results: Sequence[Any],
        feeds: tuple[Any, ...],
        *,
        gradients: bool = False,
        **claimed: Any,
    ) -> None:
        """Shapes and dtypes come before values; `claimed` as for `evidence`.

        A stashed output is in float32 (so ONNX has it) or, as frameworks do, in the dtype under
        test, whose bar it gets either way.
        """
        evidence = self.evidence(feeds, expected, **claimed)
        when = " when a gradient is asked for" if evidence.claim == "computed" else ""

        def fault(kind: str, what: str, got: str, want: str) -> Fault:
            return self.subject.fault(kind, what + when, evidence, got=got, want=want)

        if len(results) != len(expected):
            count = f"{len(expected)}{self.advice.fewer.format(len(results))}"
            raise fault("shape", "the wrong number of results", got=str(len(results)), want=count)
        for k, bound, got in pairs(expected, results):
            name = self._result(k, gradients=gradients)
            if got.shape != bound.value.shape:
                what, want = f"{name} has the wrong shape", bound.value.shape
                raise fault("shape", what, got=str(got.shape), want=str(want))
            own = self.case.inputs[self.wanted[k]] if gradients else None
            dtype, has = str(bound.value.dtype.kind), str(got.dtype.kind)
            if bound.storage is not None:
                dtype, has = own.dtype if own is not None else bound.storage.name, got.dtype.name
            elif bound.exactly or self.case.op.whole_dtypes:
                dtype, has = bound.value.dtype.name, got.dtype.name
            stashed = k in self.case.op.stashed_outputs and has == "float32"
            if has != dtype and not stashed:
                what = f"{name} has the wrong dtype"
                raise fault("dtype", what, got=got.dtype.name, want=dtype)

    def _result(self, k: int, *, gradients: bool) -> str:
        """What an output, or a gradient at `wanted`, is called."""
        if gradients:
            return f"the gradient of {self.case.op.input_name(self.wanted[k])}"
        return f"result {k}"

    def shapes_only(self, results: Sequence[Any], feed: Any) -> Judgement:
        """The judgement of shapes and dtypes, or the fault that they are."""

        def judge(arithmetic: Arithmetic) -> Judgement:
            self.shaped(self.forward_bounds(arithmetic), results, (feed,))
            return Judgement(telling=True)

        return self.by_any(judge)

    def judged_gradient(self, result: Result, feed: Any) -> Judgement:
        """The judgement of the gradients that `feed` asks for, or the fault that they are."""
        bounds = partial(self.gradient_bounds, grads=feed.grads)
        try:
            judgement = self.judged(
                bounds, self.gradients(result), (feed,),
                kind="gradient", what="the gradient is wrong", grads=feed.grads,
            )  # fmt: skip
        except Fault as fault:
            every = result.gradients or ()
            if absent := tuple(i for i in self.wanted if not every or every[i] is None):
                names = ", ".join(map(self.case.op.input_name, absent))
                advice = self.advice.stopped.format(absent)
                if self._elsewhere(absent, feed):
                    advice = "; a call that asks for every gradient returns a number"
                said = f"None for the gradient of {names}, which means zero{advice}"
                fault.details["returned"] = said
            raise
        expected = bounds(self.classes()[0])
        if any(b is not None and np.isnan(b.exact).any() for b in expected) and all(
            x is None or np.isfinite(x.astype(np.float64)).all()
            for x in (*feed.inputs, *feed.grads)
        ):  # which nothing that a backend returns would show
            prove_backward(self.case, feed.inputs, feed.grads)
        return judgement

    def _elsewhere(self, absent: tuple[int, ...], feed: Any) -> bool:
        """Whether a call that asks for every gradient returns those that this one did not."""
        every = tuple(i for i in self.case.pullable if i not in self.row.stopped)
        if every == self.wanted:
            return False
        try:
            (result,) = self.client.run(self.case.op, [feed], wanted=every, form=self.case.form)
        except (Unsupported, *FAILURES):
            return False
        gradients = result.gradients or ()
        return bool(gradients) and all(gradients[i] is not None for i in absent)

    def judged(
        self,
        bounds: Callable[[Arithmetic], Bounds],
        results: Sequence[Any],
        feeds: tuple[Any, ...],
        *,
        kind: str = "value",
        what: str = "the result is wrong",
        grads: Arrays | None = None,
        **more: Any,
    ) -> Judgement:
        """The judgement of `results`, or the fault that they are; with `grads`, of gradients."""
        judgement, expected = self.held(bounds, results, feeds, kind=kind, what=what, **more)
        # an error model is no rounding, and gradients have several
        looked_at = kind == "value" and not judgement.model and not self.case.op.typed
        alone = self.case.op.name in ALONE
        rounding = rounding_of(expected, results, alone=alone) if looked_at else Rounding()
        shares = {
            self._result(k, gradients=grads is not None): share_of(bound)
            for k, bound, got in pairs(expected, results)
            if got.size
        }
        judgement = replace(judgement, rounding=rounding, shares=shares)
        return self.controlled(judgement, expected, grads)

    def controlled(
        self, judgement: Judgement, expected: Bounds, grads: Arrays | None = None
    ) -> Judgement:
        """The judgement, and whether the bars that held it reject every control, or none."""
        arrays = () if self.case.op.unchanged else self.arrays
        tells, void = telling(expected, arrays, lambda: self.lowered(grads, judgement))
        return replace(judgement, telling=tells, void=void or judgement.share == 0)

    def held(
        self,
        bounds: Callable[[Arithmetic], Bounds],
        results: Sequence[Any],
        feeds: tuple[Any, ...],
        *,
        kind: str,
        what: str,
        **claimed: Any,
    ) -> tuple[Judgement, Bounds]:
        """The judgement, not yet whether it tells anything, and the bars that held the results.

        A result that only a looser class than the allowed one holds is convicted by the bars of
        the class that is allowed: of these are the judgement and the evidence; `claimed` as for
        `evidence`. Raises `WrongReference` where the reference's own gradient is wrong.
        """

        def shaped(arithmetic: Arithmetic) -> Bounds:
            expected = bounds(arithmetic)
            self.shaped(expected, results, feeds, gradients=gradients, **claimed)
            return expected

        gradients = kind == "gradient"
        try:
            candidates = self._fitting(bounds, results)
            judgement, expected = tightest(candidates, shaped, results)
            held_by, allowed = judgement.arithmetic, self.allowed
            details, more = {}, ""
            if judgement.right and held_by > allowed.name:
                expected = bounds(allowed)
                judgement = replace(judge(expected, results, allowed.name), arithmetic=held_by)
                kind = "arithmetic"
                subject = "the gradient" if gradients else "the result"
                what = f"{subject} is outside class {allowed.name}"
                more = f", inside class {held_by}"
                looser = self.advice.looser.format(held_by)
                details["class"] = f"{allowed.name} is allowed: {EXPLAINED[allowed.name]}{looser}"
                if judgement.ratio > FAR:
                    times = f"{judgement.ratio:.3g} bars are much for a rounding"
                    details["class"] += f"; {times}: rule out a fault first"
            if judgement.right:
                return judgement, expected
            wrong = Wrong(bounds, candidates[-1], expected, results, feeds[-1])
            judgement, why = explained(self, judgement, wrong, honest=kind == "arithmetic")
            more += why
            if kind != "arithmetic" and self._known_to_32_bits(bounds, candidates[-1], results):
                details["attributes"] = ROUNDED + self.advice.rounded
            evidence = self.evidence(feeds, expected, **claimed)
            raise self.subject.fault(kind, what + more, evidence, judgement, **details)
        except Fault:
            if gradients:  # before one is called wrong, the reference's is proved
                prove_backward(self.case, feeds[-1].inputs, feeds[-1].grads)
            raise

    def _known_to_32_bits(
        self, bounds: Callable[[Arithmetic], Bounds], loosest: Arithmetic, results: Sequence[Any]
    ) -> bool:
        """Whether attributes as ONNX stores them make the results right, where they are not so."""
        if self.case.op.domain == "d5test":  # ONNX stores nothing of a step
            return False
        stored = replace(loosest, rounded_attributes=True)
        return not self.allowed.rounded_attributes and judge(bounds(stored), results).right

    def _fitting(
        self, bounds: Callable[[Arithmetic], Bounds], results: Sequence[Any]
    ) -> Sequence[Arithmetic]:
        """The attempts whose formula gives the shapes of the results; the classes if none does."""
        every = self.attempts()
        formulas = {a.formula: a for a in every}
        if len(formulas) == 1:
            return every
        fits = {formula for formula, a in formulas.items() if fit(bounds(a), results)}
        return [a for a in every if a.formula in fits] or self.classes()

    def gradients(self, result: Result) -> tuple[Any, ...]:
        """The gradients at `wanted`. A framework that reports none says that it is zero."""
        every = result.gradients or ()
        return tuple(
            np.zeros_like(self.arrays[i]) if every[i] is None else every[i] for i in self.wanted
        )

    def lowered(self, grads: Arrays | None, judgement: Judgement) -> tuple[Any, ...]:
        """The reference's results in the next lower precision than that which was judged."""
        dtype = self.lower_dtype(judgement)
        results = lower_precision(self.case.op, self.arrays, grads, dtype)
        return results if grads is None else tuple(results[i] for i in self.wanted)

    def lower_dtype(self, judgement: Judgement) -> str:
        """The dtype, or `tf32`, than which the next lower precision has to be rejected."""
        dtype = self.case.dtype
        if judgement.model:
            held = (judgement.arithmetic, judgement.model)
            alike = [a for a in self.attempts() if (a.name, a.model) == held]
            formats = (fmt for a in alike for fmt in (a.storage, a.primitive))
            dtype = min(formats, key=lambda fmt: fmt.precision).name
        return "tf32" if self.tf32 and dtype == "float32" else dtype


def drawn_inputs(case: Case) -> Iterator[tuple[int, Tensor]]:
    """The floating-point inputs of a case whose values are drawn, with their positions."""
    for i in case.pullable:
        tensor = case.inputs[i]
        if tensor is not None and tensor.data is None and tensor.values[0] != "constant":
            yield i, tensor


def _added(one: Bound | None, other: Bound | None) -> Bound | None:
    if one is None or other is None:
        return one or other
    with np.errstate(invalid="ignore"):
        value = one.value + other.value
    ulp = 2 * one.storage.u * np.abs(value) if one.storage else 0.0
    return Bound(value, one.bar + other.bar + ulp, one.storage)
