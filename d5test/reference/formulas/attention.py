"""Attention in other orders, and with other answers where nothing is left to attend to."""

from dataclasses import dataclass

import numpy as np

from d5test.reference.formulas.table import Table
from d5test.reference.operators import attention


@dataclass(frozen=True, kw_only=True, repr=False)
class LowestScores(attention.Attention):
    """Attention in whose scores what is masked is the lowest number, not negative infinity."""

    largest: float

    def forward(self, *inputs):
        y, key, value, scores = super().forward(*inputs)
        return y, key, value, np.where(scores == -np.inf, -self.largest, scores)


class AttentionNaNAlone(attention.Attention):
    """Attention by that softmax."""

    def _scores(self, q, k, mask, allowed):
        *scores, p = super()._scores(q, k, mask, allowed)
        nan = np.isnan(scores[-1])
        return *scores, np.where(nan.any(-1, keepdims=True) & ~nan, np.zeros_like(p), p)


class ZerosForNaNScores(attention.Attention):
    """Attention that takes a query whose scores are all NaN for one that sees no key."""

    def _scores(self, q, k, mask, allowed):
        *scores, p = super()._scores(q, k, mask, allowed)
        blind = (np.isnan(scores[-1]) | ~allowed).all(-1, keepdims=True)
        return *scores, np.where(blind, np.zeros_like(p), p)


class OpenForBlindQueries(attention.Attention):
    """Attention of which nothing is said where a query sees no key: NaN, which is not judged."""

    def _scores(self, q, k, mask, allowed):
        *scores, p = super()._scores(q, k, mask, allowed)
        blind = ~allowed.any(-1, keepdims=True)
        return *scores, np.where(blind, np.full_like(p, np.nan), p)


class NaNForInfinities(attention.Attention):
    """Attention whose products take an infinity for a NaN, since they split it in two parts."""

    def forward(self, *inputs):
        factors = (0, 1, 2, 4, 5)
        return super().forward(
            *(
                np.where(np.isinf(x), np.full_like(x, np.nan), x)
                if i in factors and x is not None
                else x
                for i, x in enumerate(inputs)
            )
        )


FORMULAS: Table = {
    "lowest scores": {attention.Attention: LowestScores},
    "zeros for NaN scores": {attention.Attention: ZerosForNaNScores},
    "open for queries that see no key": {attention.Attention: OpenForBlindQueries},
    "NaN for infinities": {attention.Attention: NaNForInfinities},
    "NaN alone": {attention.Attention: AttentionNaNAlone},
}
