"""A sample of the mutants of some operators; `make faults` judges all of every one."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.faults.mutants import KINDS, Mutant
from tests.faults.report import score, unfound, verdict
from tests.faults.score import VALUED, Outcome, outcomes

A_KIND = 1
"""Mutants of each kind that are taken of an operator."""
BY_DAY = VALUED[::3]
"""Operators whose mutants are taken."""


def some(every: Sequence[Mutant]) -> list[Mutant]:
    """Of each kind so many, always the same ones."""
    chosen: list[Mutant] = []
    for kind in KINDS:
        ones = [mutant for mutant in every if mutant.kind == kind]
        chosen += random.Random(f"{kind} 2019").sample(ones, min(A_KIND, len(ones)))
    return chosen


@pytest.fixture(scope="module")
def sample() -> list[Outcome]:
    return [one for name in BY_DAY for one in outcomes(name, some)]


def test_the_faults_of_the_sample_are_found(sample: list[Outcome]) -> None:
    counts = Counter(map(verdict, sample))
    survivors = [str(one.mutant) for one in sample if verdict(one) == "survived"]
    assert counts["found"] > 250
    assert score(counts) >= 0.99, survivors


def test_no_kind_of_any_operator_is_missed(sample: list[Outcome]) -> None:
    assert unfound(sample) == []


def test_every_kind_is_in_the_sample(sample: list[Outcome]) -> None:
    assert {one.mutant.kind for one in sample if one.verdict == "found"} == set(KINDS)
