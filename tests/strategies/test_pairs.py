"""The pairs of attribute values that the cases of a cell meet, operator by operator."""

from collections import Counter
from dataclasses import fields
from itertools import product
from typing import Any

import pytest
from hypothesis import given, seed, settings

from d5test.case import Case, Tensor
from d5test.exploration.draws import PROFILE, reproducible_draws
from d5test.reference.operators import OPERATORS
from d5test.strategies import cases
from d5test.strategies.pairs import ALL_MET, IN_VAIN, Pairs, alone, pairs_of, values_of
from d5test.strategies.sizes import Sizes
from tests.nightly import at_night

EXAMPLES = 25
SMALL = ("Softmax", "Gemm", "ReduceSum", "Pad", "CumSum", "Gelu")
LARGE = {"Conv": 0.7, "MaxPool": 0.6, "Attention": 0.7, "LSTM": 0.9}
"""Operators with more pairs than 25 cases can meet, and the share that they do."""


def drawn(name: str, count: int, number: int, pairs: Pairs | None = None) -> list[Case]:
    """So many cases of an operator, those passed over left out."""
    judged: list[Case] = []

    def draw(case: Case) -> None:
        if len(judged) < count and not (pairs and pairs.passes(case)):
            judged.append(case)

    draw = given(case=cases(OPERATORS[name], "float32", sizes=lambda number: Sizes()))(draw)
    draw = settings(PROFILE, max_examples=count if pairs is None else 8 * count)(draw)
    with reproducible_draws():
        seed(number)(draw)()
    return judged


def possible(name: str) -> set[Any]:
    """The pairs that more than one of many cases has."""
    counts = Counter(pair for case in drawn(name, 400, 1) for pair in set(pairs_of(case)))
    return {pair for pair, count in counts.items() if count > 1}


def met(name: str, pairs: Pairs | None, number: int = 2) -> set[Any]:
    return {pair for case in drawn(name, EXAMPLES, number, pairs) for pair in pairs_of(case)}


NIGHTLY = [*map(at_night, SMALL[2:])]


@pytest.mark.parametrize("name", [*SMALL[:2], *NIGHTLY])
def test_25_cases_meet_every_pair_where_that_is_possible(name: str) -> None:
    """With two seeds of three; with the third one nearly all."""
    every = possible(name)
    one, two, three = sorted(len(met(name, Pairs(), n) & every) for n in (2, 3, 4))
    assert (two, three) == (len(every), len(every))
    assert one > 0.95 * len(every)


def test_by_chance_they_do_not() -> None:
    assert not met("LayerNormalization", None) >= possible("LayerNormalization")


@pytest.mark.nightly
@pytest.mark.parametrize("name", LARGE)
def test_of_many_pairs_most_are_met(name: str) -> None:
    every = possible(name)
    assert len(met(name, Pairs()) & every) > LARGE[name] * len(every)


@pytest.mark.nightly
def test_the_pairs_of_all_operators() -> None:
    shares = {}
    for name in OPERATORS:
        if every := possible(name):
            shares[name] = len(met(name, Pairs()) & every) / len(every)
    whole = [name for name, share in shares.items() if share == 1]
    assert min(shares.values()) > 0.6, shares
    assert len(whole) > 0.6 * len(shares), shares


def test_what_counts_as_a_value() -> None:
    conv = OPERATORS["Conv"](strides=(2, 3), pads=(0, 0, 0, 1), group=7)
    values = dict(values_of(Case(conv, (Tensor((2, 3)), Tensor((2, 3)), None))))
    assert values["strides"] == ("all", 2)  # or more
    assert values["pads"] is True  # they differ
    assert values["group"] == 5  # and all that is larger
    assert (values["input 1"], values["input 2"]) == (True, False)
    gemm = dict(values_of(Case(OPERATORS["Gemm"](alpha=-0.5), ())))
    assert (gemm["alpha"], gemm["beta"]) == (-1, "default")


def test_few_attributes_apart_from_their_defaults_are_of_themselves() -> None:
    attention, inputs = OPERATORS["Attention"], (Tensor((2, 2, 2, 2)),) * 3
    one = Case(attention(softcap=2.0), inputs)
    assert alone(one)
    assert not alone(Case(attention(), inputs))
    assert not alone(Case(attention(softcap=2.0, is_causal=1, scale=0.5), inputs))
    assert alone(one) != alone(Case(attention(softcap=2.0), (*inputs, Tensor((2, 2)))))
    assert alone(one) != alone(Case(attention(softcap=2.0, scale=0.5), inputs))

    pairs = Pairs()
    for causal, mode, softcap in product((0, 1), (0, 1), (0.0, 2.0)):
        op = attention(is_causal=causal, qk_matmul_output_mode=mode, softcap=softcap)
        if op != one.op:
            pairs.passes(Case(op, inputs))
    assert pairs.met.issuperset(pairs_of(one))
    assert [pairs.passes(one) for _ in range(2)] == [False, True]
    assert not alone(Case(OPERATORS["Softmax"](axis=0), inputs[:1]))  # all of its cases have few


def test_some_cases_have_all_but_few_attributes_at_their_defaults() -> None:
    judged = [case for number in range(2, 10) for case in drawn("Attention", 25, number, Pairs())]
    usual = OPERATORS["Attention"]()
    apart = Counter(
        sum(getattr(case.op, f.name) != getattr(usual, f.name) for f in fields(usual))
        for case in judged
    )
    assert sum(apart[n] for n in (0, 1, 2)) > 0.3 * len(judged), apart


def test_passing_over_ends() -> None:
    pairs = Pairs()
    case = Case(OPERATORS["Softmax"](), (Tensor((2, 3)),))
    passed = [pairs.passes(case) for _ in range(3 * ALL_MET)]
    assert passed[: 2 + IN_VAIN] == [False, *[True] * IN_VAIN, False]
    assert not any(passed[ALL_MET + 1 :])
    other = Case(OPERATORS["Softmax"](axis=0), (Tensor((2, 3)),))
    assert not pairs.passes(other)
