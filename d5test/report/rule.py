"""How the verdicts come of the runs: what a page names, and what verifies it applies again.

Requirements: a rule is its own data, so that a page that carries them can be verified by whoever
has d5test and nothing else; a page names one of `RULES`, and no code of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol

from d5test.compare import Comparison, Run, Unreadable, compare


class Rule(Protocol):
    """What decides. Its class is called with what `to_json` gave.

    assumes     of the noise, beyond what ranks and signs need; empty if nothing
    summarises  ratios that it sums up, how and why; empty if none
    """

    assumes: str
    summarises: str

    def compared(self, old: Sequence[Run], new: Sequence[Run], effect: float) -> Comparison:
        """The comparison of two versions."""
        ...

    def to_json(self) -> Any:
        """All that it knows beside the runs."""
        ...


class Stored:
    """That of `d5test compare`: by the runs alone."""

    assumes = (
        "limits take Student's t of what runs differ by, in logarithms; what that holds for was "
        "simulated with heavy tails, drift and load (docs/compare.md)"
    )
    summarises = ""

    def __init__(self, _: Any = None) -> None:
        pass

    def compared(self, old: Sequence[Run], new: Sequence[Run], effect: float) -> Comparison:
        """The comparison of two versions."""
        return compare(old, new, effect)

    def to_json(self) -> None:
        """Nothing."""


RULES: Mapping[str, str] = {
    "stored": "d5test.report.rule:Stored",
    "gated": "d5test.gate.rule:Gated",
}
"""Where the rules are, by the name that a page carries."""


def name_of(rule: Rule) -> str:
    """The name of a rule, which must be one of `RULES`."""
    place = f"{type(rule).__module__}:{type(rule).__qualname__}"
    return next(name for name, known in RULES.items() if known == place)


def rule_of(name: Any, content: Any) -> Rule:
    """The rule of which `to_json` gave the content."""
    if name not in RULES:
        raise Unreadable("its verdicts come of a rule that this d5test does not know")
    module, _, kind = RULES[name].partition(":")
    rule: Rule = getattr(import_module(module), kind)(content)
    return rule
