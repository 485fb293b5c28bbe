"""One test, from its judgements to its conclusion.

Requirements: whatever is raised while something is judged is an outcome with a name, but for
d5test's own errors; what is counted is counted once; a test fails for a fault, or since too little
was judged, and for nothing else; what was left out is said.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from d5test.backends.base import Unsupported
from d5test.client.messages import FAILURES, Crashed, Hung
from d5test.outcome.fault import Fault, kind_of_fault
from d5test.outcome.tally import Inapplicable, Tally

KINDS = {Crashed: "crash", Hung: "hang"}
SHOWN = 3
"""Reasons that a line names."""

Reproduce = Callable[[Fault], tuple[str, str]]
"""The path of a fault's reproducer, empty if there is none, and what to say of it."""
First = Callable[[Fault], str]
"""The test that was the first to meet an exception of this line; empty where it is this one."""


def first_of_none(_: Fault) -> str:
    """No test was before."""
    return ""


@dataclass(frozen=True)
class Conclusion:
    """What a test ends with, and its text.

    passed    something was judged, and all of it was right
    failed    there was a fault
    untested  too little was judged
    skipped   nothing was judged, or not all of it, for a reason
    known     its fault is a known failure
    """

    status: Literal["passed", "failed", "untested", "skipped", "known"]
    text: str = ""


@dataclass
class Assessment:
    """The outcomes of one test.

    missing  why too little was judged; empty if enough was
    known    the reason of the known failure that the fault is; empty if it is none
    steady   whether the faults were there again when their cases were repeated
    """

    tally: Tally
    faults: list[Fault] = field(default_factory=list)
    missing: str = ""
    known: str = ""
    steady: bool = True

    @contextmanager
    def judging(self, case: object, on: str) -> Iterator[None]:
        """Within: what is raised of `case` becomes an outcome. `on` names the backend."""
        try:
            yield
        except (Inapplicable, Unsupported) as why:
            self.tally.count_unjudged(why)
        except Fault as fault:
            self.faults.append(fault)
        except FAILURES as failure:
            self.faults.append(failed(self.tally.check, case, on, failure))

    def conclude(self, reproduce: Reproduce, first: First = first_of_none) -> Conclusion:
        """Count the faults, with their reproducers, and say what came of the test.

        Of an exception that a line of the backend's own code raised in an earlier test, too, only
        that test is named: a misspelt name fails them all.
        """
        tally, texts = self.tally, []
        if self.known:
            tally.known += 1
            return Conclusion("known", self.known)
        for fault in self.faults:
            parts = [fault.message.rstrip()] if fault.causes else []
            for accused in fault.accused:
                path, note = reproduce(accused)
                tally.count_fault(accused, path)
                same = first(accused)
                lines = [
                    f"{accused.headline}\n  as in {same}" if same else accused.message.rstrip()
                ]
                if not self.steady:
                    lines.append("  not steady: repeated, the case can be right")
                lines += [f"  reproducer: {note}"] if note else []
                parts.append("\n".join(lines))
            texts.append("\n\n".join(parts))
        if texts:
            return Conclusion("failed", "\n\n".join(texts))
        if self.missing:
            tally.untested = 1
            cell = " in ".join(filter(None, (tally.operator, tally.dtype)))
            return Conclusion("untested", f"untested: {cell}: {self.missing}")
        if tally.left_out:
            return Conclusion("skipped", f"left out: {tally.left_out} after {tally.drawn} cases")
        if not tally.right:
            return Conclusion("skipped", unjudged(tally))
        return Conclusion("passed")


def failed(check: str, case: object, on: str, failure: Exception) -> Fault:
    """The fault of a backend that gave no answer."""
    kind = KINDS.get(type(failure), "exception")
    first, _, rest = str(failure).partition("\n")
    name = case if isinstance(case, str) else repr(case)
    details = {"output": rest} if rest else {}
    return kind_of_fault(kind)(check, case, f"{name} on {on}: {first}", details)


def unjudged(tally: Tally) -> str:
    """Why nothing was judged."""
    void = "void, the error bar accepts results that are obviously wrong"
    parts = [
        f"{count} {'case is' if count == 1 else 'cases are'} {what}"
        for what, count in (("known", tally.known), (void, tally.void))
        if count
    ]
    most = sorted(tally.reasons.items(), key=lambda reason: -reason[1])[:SHOWN]
    parts += [reason if count == 1 else f"{reason} ({count} cases)" for reason, count in most]
    word = "inapplicable" if tally.inapplicable == tally.drawn else "unsupported"
    if tally.known or tally.void or not tally.drawn:
        word = "nothing was judged"
    return f"{word}: {'; '.join(parts)}"
