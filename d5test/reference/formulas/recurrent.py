"""Recurrent layers."""

from dataclasses import dataclass

import numpy as np

from d5test.reference.formulas.table import Table, mixed
from d5test.reference.operators.recurrent import GRU, LSTM


@dataclass(frozen=True, kw_only=True, repr=False)
class LargestForNaN:
    """A recurrent layer whose activations take a NaN for the largest number."""

    largest: float

    def gate(self, z):
        return super().gate(np.where(np.isnan(z), self.largest, z))

    def candidate(self, z):
        return super().candidate(np.where(np.isnan(z), self.largest, z))


FORMULAS: Table = {
    "largest for NaN": mixed(LargestForNaN, GRU, LSTM),
}
