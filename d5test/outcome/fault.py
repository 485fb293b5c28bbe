"""A fault: what a backend did wrong, with all that is needed to see it again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import zip_longest
from math import inf, isfinite, isinf, isnan, nan
from typing import Any, ClassVar, Literal

import numpy as np

from d5test.backends.base import Unsupported
from d5test.case import Case, Operator, dtype_of, is_float
from d5test.client.history import Before
from d5test.client.messages import FAILURES, TO_A_ROW, Advice, Calls
from d5test.names import short
from d5test.numerics.arithmetic import NARROWER, format_of
from d5test.numerics.bounds import Bounds
from d5test.numerics.explanation import bits_right
from d5test.numerics.judgement import Judgement
from d5test.worker.machine import FRESH

SMALL = 8
"""Elements of an input that is printed."""
TINY = 2
"""A number below this multiple of the smallest normal number is tiny."""
Character = Literal[
    "inaccuracy", "either", "approximation", "cancellation", "NaN", "infinite", "finite",
    "other infinity", "zero", "flushed", "unwritten", "reordered", "different function",
]  # fmt: skip
EXPLANATIONS: Mapping[Character | None, str] = {
    None: "",
    "inaccuracy": ": an inaccuracy, as computing in {0.explained} bits may make",
    "either": ": a different function, or computing in {0.explained} bits",
    "approximation": ": a different constant, a missing term or an approximation: as computing in "
    "{0.explained} bits, which no dtype has",
    "cancellation": ": an inaccuracy, as a difference of numbers near 1 may make: "
    "{2:.2g} ULPs of 1",
    "NaN": ": NaN, where a number is due",
    "infinite": ": infinite, where a finite number is due",
    "finite": ": finite, where an infinity is due",
    "other infinity": ": the other infinity is due",
    "zero": ": zero, where a tiny number is due",
    "flushed": ": right if subnormal numbers are read as zero",
    "unwritten": ": memory that nothing wrote, which d5test fills with the byte {1:#x}",
    "reordered": ": the numbers that are due, in another order",
    "different function": ": a different function, which no rounding explains",
}


NEARLY = ": an approximation or a different function, which no rounding explains"
"""Of the last one, where at least half of the bits are right."""
ALIKE: Mapping[Character | None, Character] = {
    "approximation": "inaccuracy", "cancellation": "inaccuracy", "either": "different function",
    "reordered": "different function",
}  # fmt: skip
"""Characters that depend on the inputs, and which other one the same cause may have."""
ABOVE = 6
"""Bits by which arithmetic is better than its own bars, upper bounds that they are."""
LOST = 4
"""Bits that a sum loses whose terms cancel, where nothing else is said of it."""
LITTLE = 2
"""Bits fewer than the dtype has, as any rounding too many may make."""


@dataclass(frozen=True)
class Evidence:
    """The calls that show a fault, and the claim that they break.

    feeds     the inputs (and upstream gradients) of each call, in order
    expected  what the claim compares each call with: outputs, or gradients where the feed has
              upstream gradients
    claim     `within` the bars; `computed` within them are the outputs, though the feed has
              upstream gradients; gradients are `shaped` as their inputs; zeros are `signed` as
              expected where the bar is 0; the calls `repeat` each other bit for bit; inputs are
              left `untouched`; outputs are `kept` when the next call is made; outputs are
              `rounded` to nearest; the call `returns`; the call `raises`
    reuse     each feed's values are written over the last one's, at the same address
    """

    feeds: tuple[Any, ...]
    claim: str
    expected: tuple[Bounds, ...] = ()
    wanted: tuple[int, ...] = ()
    reuse: bool = False


SAID = ("raised", "how")
"""Details that hold what a framework raised, or how its process ended."""
ENDED = "the process ended: "
"""What `how` begins with, where it ended."""
ON_EMPTY = "crash on empty tensors:"
"""What such causes begin with."""
AT = "at"
"""The detail that holds which exception the backend's own code raised, and its line."""
NUMBER = re.compile(r"[\[(][-\d, ]*[\])]|-?\b\d[\d.]*")
"""A number, or a shape: `()` too."""

NO_CALLS = Evidence((), "returns")
"""Of a fault that no call of one operator shows."""


@dataclass(eq=False, repr=False)
class Fault(AssertionError):
    """A judgement that is wrong, or a crash, a hang, a wrong exception.

    kind    the word by which faults are told apart: `value`, `gradient`, `shape`, `dtype`,
            `crash`, `hang`, `exception`, `mutated`, `overwritten`, `cached`, `nondeterministic`,
            `layout`, `batch`, `special`, `sign of zero`, `accepted`, `arithmetic`, `declared`,
            `not compiled`, `biased`; of more than an operator also `network`, `trajectory`,
            `curve`, ...
    case    what was asked; its repr rebuilds it where it is a `Case`
    causes  the faults of parts that explain this one: those of a network's nodes
    calls   the functions of the framework that it calls, once they are named
    before  the calls that the worker had answered, where that is known
    drawn   the fault as it was before it was reduced, until its calls are named

    How bad it is: `character`.
    """

    kind: ClassVar[str] = "fault"

    check: str
    case: Any
    headline: str
    details: dict[str, str]
    judgement: Judgement | None = None
    evidence: Evidence = NO_CALLS
    causes: tuple[Fault, ...] = ()
    calls: Calls = field(default=Calls(), init=False)
    before: Before = field(default=Before(), init=False)
    drawn: Fault | None = field(default=None, init=False)

    def name_calls(self, client: Any) -> None:
        """Say in the headline which functions of the framework the case calls.

        The one that computes everything is accused; of several, which the row composes, none is.
        Where others only moved numbers, that has to hold of the case as it was drawn: a reduced
        one may have no number that they change.
        A row of a user's own may call it with other arguments than the operator means.
        "And more" stands for what is not recorded: methods, operators, what is not public.
        A crash or a hang is repeated for it, and the call that was under way is named. None is
        named where the backend's own code is wrong.
        """
        drawn, self.drawn = self.drawn, None
        if self.kind == "row" or AT in self.details:
            return
        if isinstance(self.case, Case) and (reason := client.known.of_other_code(self.case)):
            self.details["known"] = f"of d5test's own row, not of the one here: {reason}"
        op, place = named(self.case), place_of(client.about)
        what = self.headline.removeprefix(f"{op}: ").removesuffix(f" on {place}")
        with suppress(Unsupported, *FAILURES):
            self.calls = self.called(client)
            if self.calls.moving and drawn is not None:
                before = drawn.called(client)
                if before.names != self.calls.names:
                    self.calls = replace(before, one=False)
        if self.calls.fatal and not self.calls.one:
            what += f" in {self.calls.fatal}"
        *others, last = self.calls.names or ("",)
        if self.calls.one and client.about.row_of(self.case).ours:
            self.headline = f"{op} by {last}: {what} on {place}"
        elif self.calls.one:
            self.headline = f"{op} by {last} as its row calls it: {what} on {place}"
        elif self.calls.complete and last:
            names = " and ".join(filter(None, (", ".join(others), last)))
            self.headline = f"{op} composed of {names} by its row: {what} with {place}"
        elif hasattr(self.case.op, "rule"):  # a step of an optimizer, which has that name
            return
        elif last:
            names = f"{', '.join(self.calls.names)} and more"
            self.headline = f"{op} composed by its row of {names}: {what} with {place}"
        elif not client.about.row_of(self.case).native:
            self.headline = f"{op} composed by its row: {what} with {place}"

    def called(self, client: Any) -> Calls:
        """The functions that its last call enters."""
        inputs, dying = self.evidence.feeds[-1].inputs, self.kind in ("crash", "hang")
        called: Calls = client.record(self.case.op, inputs, self.case.form, dying=dying)
        return called

    @property
    def accused(self) -> tuple[Fault, ...]:
        """What is to be mended: the causes where they are known, else the fault itself."""
        return self.causes or (self,)

    @property
    def cause(self) -> str:
        """The same for faults that probably have one cause, on one backend.

        The line of the backend's own code that raised; what was raised, its traceback apart and
        without numbers; how the process ended, whichever the operator where a tensor is empty;
        that it did not answer; the format to which results or inputs are rounded; of an engine
        what is said of it, whatever it trained; else the kind, the operator, and the character.
        """
        if AT in self.details:
            return self.details[AT]
        op = getattr(self.case, "op", None)
        operator = op.name if op is not None else str(self.case)
        if "raised" in self.details:
            return f"raised: {' '.join(NUMBER.sub('N', self.said).split())}"
        if "how" in self.details:
            return f"{ON_EMPTY if self._on_empty else f'{self.kind}: {operator}'}{self._status}"
        if self.judgement is not None and self.judgement.rounded_to:
            whole = isinstance(self.judgement.want, int)
            what = "integers" if whole else self.case.dtype
            return f"{what} rounded to {self.judgement.rounded_to}"
        if self.judgement is not None and self.judgement.read_as:
            if self.judgement.converted:
                return f"integers converted to {self.judgement.read_as}"
            return f"inputs in {self.case.dtype} rounded to {self.judgement.read_as}"
        if self.check == "engine":
            return self.headline
        character = ALIKE.get(self.character, self.character)
        return f"{self.kind}: {operator} {character or ''}"

    @property
    def _on_empty(self) -> bool:
        """Whether the process died of an empty tensor, as far as its check tells."""
        arrays = [x for feed in self.evidence.feeds[-1:] for x in feed.inputs if x is not None]
        degenerate = self.kind == "crash" and self.check == "degenerate"
        return degenerate and any(x.size == 0 for x in arrays)

    @property
    def _status(self) -> str:
        """How the process ended, after a space; nothing where it did not answer."""
        return f" {self.said.removeprefix(ENDED)}" if self.kind == "crash" else ""

    @property
    def said(self) -> str:
        """What a framework raised, without its traceback, or how its process ended."""
        raised, how = (self.details.get(name, "").strip() for name in SAID)
        return raised.partition('\nFile "')[0] or how.partition("\n")[0]

    @property
    def character(self) -> Character | None:
        """What a wrong value is; `None` where that cannot be told, and of other faults."""
        judgement = self.judgement
        return (
            None if judgement is None else _character(judgement, getattr(self.case, "dtype", ""))
        )

    @property
    def message(self) -> str:
        """The headline, then one line for each detail."""
        width = max(map(len, self.details), default=0)
        further = "\n" + " " * (width + 4)
        lines = [
            f"  {name:<{width}}  {text.replace(chr(10), further)}"
            for name, text in self.details.items()
        ]
        return "\n".join([self.headline, "", *lines])

    def __str__(self) -> str:
        return self.message


@cache
def kind_of_fault(kind: str) -> type[Fault]:
    """The class of faults of one kind: Hypothesis tells failures apart by their class."""
    return type(f"{kind.title().replace(' ', '')}Fault", (Fault,), {"kind": kind})


@dataclass
class Subject:
    """The one whom a message speaks of, operator and backend, and what it advises."""

    check: str
    case: Case
    about: Any
    advice: Advice = TO_A_ROW

    def fault(
        self,
        kind: str,
        what: str,
        evidence: Evidence = NO_CALLS,
        judgement: Judgement | None = None,
        **details: str,
    ) -> Fault:
        """A fault of `kind`; `what` completes the sentence "Conv: ... on torch 2.13.0"."""
        case, opset = self.case, getattr(self.about, "opset", 0)
        words = {
            "check": f"{self.check} in {case.dtype}" if _has_floats(case) else self.check,
            "inputs": inputs_in_words(case, evidence),
            **values_in_words(case.op, evidence),
            **(
                {} if judgement is None else judgement_in_words(judgement, case.dtype, self.advice)
            ),
            **({} if judgement is None else derived_in_words(case.op, judgement, evidence)),
            **details,
            **({"model": f"operator set {opset}"} if opset else {}),
            "case": repr(case),
        }
        headline = f"{named(case)}: {what} on {place_of(self.about)}"
        return kind_of_fault(kind)(self.check, case, headline, words, judgement, evidence)


def named(case: Case) -> str:
    """The operator, and the form by which it is called: `Reciprocal() as x ** -1`."""
    return f"{case.op!r} as {case.form}" if case.form else repr(case.op)


def _has_floats(case: Case) -> bool:
    """Whether a case has a floating-point input, or none at all: then it is of such a dtype."""
    tensors = [t for t in case.inputs if t is not None]
    return not tensors or any(is_float(t.dtype) for t in tensors)


def place_of(about: Any) -> str:
    """Backend, version, device and mode: `torch 2.13.0 (cpu, eager)`.

    Of one in a file the framework, too: `mine.py:Mine, paddle 3.3.1 (cpu, eager)`.
    """
    name = short(about.name)
    whose = name if name == about.name else f"{name}, {about.framework}"
    return f"{whose} {about.version} ({about.device}, {about.mode})"


def inputs_in_words(case: Case, evidence: Evidence) -> str:
    """Dtypes, shapes, and how they lie in memory: `float32 (2, 3) transposed, int64 (1,)`.

    Those of the last call, which may be a batch.
    """
    words = []
    feed = evidence.feeds[-1] if evidence.feeds else None
    arrays = [None] * len(case.inputs) if feed is None else feed.inputs
    layouts = [] if feed is None else feed.layouts or []
    names = [f"{name} " for name in case.op.parameters]
    for tensor, x, layout, name in zip_longest(case.inputs, arrays, layouts, names):
        if tensor is None:
            words.append("-")
        elif tensor.same_as is not None:
            words.append(f"{case.op.input_name(tensor.same_as)} again")
        else:
            word = f"{name or ''}{tensor.dtype} {tensor.shape if x is None else x.shape}"
            words.append(word if layout in (None, "contiguous") else f"{word} {layout}")
    if feed is not None and feed.grads is not None and feed.grad_layout != "contiguous":
        words.append(f"upstream {feed.grad_layout}")
    return ", ".join(words)


def values_in_words(op: Operator, evidence: Evidence) -> dict[str, str]:
    """Small inputs and upstream gradients of the last call: as few digits as tell each number."""
    words: dict[str, str] = {}
    for feed in evidence.feeds[-1:]:
        for what, arrays in (
            ("input", feed.inputs),
            ("upstream", feed.grads or ()),
            ("tangent", feed.tangents or ()),
        ):
            for i, x in enumerate(arrays):
                if x is not None and x.size <= SMALL:
                    lines = np.array2string(x, separator=", ", floatmode="unique")
                    line = " ".join(lines.split())
                    line = line.replace("[ ", "[").replace(" ,", ",").replace(" ]", "]")
                    words[op.input_name(i) if what == "input" else f"{what} {i}"] = line
    return words


def judgement_in_words(
    judgement: Judgement, dtype: str, advice: Advice = TO_A_ROW
) -> dict[str, str]:
    """Worst element, value, expectation, bar, and how bad that is."""
    words = {
        "worst": f"{_element(judgement)}result {judgement.output}",
        "got": repr(judgement.got),
        "want": f"{judgement.want!r}, give or take {judgement.bar:.3g}",
        "error": f"{judgement.ratio:.4g} times the bar",
    }
    if judgement.bar == 0:
        words["want"] = f"{judgement.want!r}, exactly"
    elif isfinite(judgement.want) and _beyond(judgement, dtype):
        words["want"] = f"{inf * judgement.want!r}: {judgement.want:.4g} is beyond {dtype}"
    if isinf(judgement.ratio):
        error = abs(judgement.got - judgement.want)
        words["error"] = f"{error:.4g}, where none is allowed"
        if not isfinite(error) or not error or judgement.bar:
            del words["error"]
    whole = isinstance(judgement.want, int)  # of which each bit counts
    said = judgement.rounded_to or judgement.read_as or judgement.reordered or not whole
    if said and not (judgement.right or judgement.got == judgement.want or isnan(judgement.want)):
        words["right"] = _right_in_words(judgement, dtype, advice)
    words["judged"] = f"{judgement.share:.0%} of the elements"
    return words


def _right_in_words(judgement: Judgement, dtype: str, advice: Advice) -> str:
    """How many of the bits are right, and what explains the others."""
    got, want = judgement.got, judgement.want
    length = want.bit_length() if isinstance(want, int) else None
    precision = format_of(dtype).bits_of(want) if length is None else length
    bits, character = bits_right(got, want, precision), _character(judgement, dtype)
    of_one = abs(got - want) / (2 * format_of(dtype).u)
    explanation = EXPLANATIONS[character].format(judgement, FRESH, of_one)
    if character == "flushed" or (character == "zero" and precision < format_of(dtype).precision):
        explanation += advice.flushes
    if character == "different function" and 2 * bits >= precision:
        explanation = NEARLY
    if judgement.rounded_to:
        explanation = f": every result is a number of {judgement.rounded_to}"
    elif judgement.read_as:
        how = "converted" if judgement.converted else "rounded"
        explanation = f": right if inputs are {how} to {judgement.read_as} first"
    return f"{bits} of {precision} bits{explanation}"


def _beyond(judgement: Judgement, dtype: str) -> bool:
    """Whether the result has to be an infinity of the dtype."""
    return abs(judgement.want) - judgement.bar > format_of(dtype).largest


def derived_in_words(op: Operator, judgement: Judgement, evidence: Evidence) -> dict[str, str]:
    """Where the worst element of a derivative is; nothing where none is judged."""
    if evidence.claim not in ("within", "special") or not evidence.feeds:
        return {}
    feed, position = evidence.feeds[-1], judgement.output
    if feed.grads is not None:
        what = f"the gradient of {op.input_name(evidence.wanted[position])}"
        if feed.tangents is not None:
            what = f"the derivative of {what}"
    elif feed.tangents is not None:
        what = f"the tangent of output {position}"
    else:
        return {}
    return {"worst": f"{_element(judgement)}{what}"}


def _element(judgement: Judgement) -> str:
    place = ", ".join(map(str, judgement.position))
    return f"element [{place}] of " if judgement.position else ""


def _character(judgement: Judgement, dtype: str) -> Character | None:
    got, want = judgement.got, judgement.want
    if judgement.right:
        return None
    fresh = float(np.full(8, FRESH, np.uint8).view(dtype_of(dtype))[0]) if dtype else nan
    largest = fresh == format_of(dtype).largest if dtype else False  # in bfloat16 it is
    if got == fresh and not (largest and isinf(want)):
        return "unwritten"
    if judgement.reordered:
        return "reordered"
    if isnan(want):
        return None
    if isnan(got):
        return "NaN"
    if isinf(want) or (dtype and _beyond(judgement, dtype)):
        return "other infinity" if isinf(got) else "finite"
    if isinf(got) and not judgement.flushed:
        return "infinite"
    if judgement.explained is None:
        return None
    if got == 0 and 0 < abs(want) < TINY * format_of(dtype).smallest_normal:
        return "zero"
    if judgement.flushed:
        return "flushed"
    if judgement.cancelled:
        return "cancellation"
    if not judgement.explained:
        return "different function"
    least = max(judgement.explained - LOST, 1)
    if want and bits_right(got, want, least) < least:
        return "either"
    near = any(bits <= judgement.explained <= bits + ABOVE for bits in NARROWER)
    slight = bool(dtype) and judgement.explained >= format_of(dtype).precision - LITTLE
    return "inaccuracy" if near or slight else "approximation"
