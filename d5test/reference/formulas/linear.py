"""Matrix products, determinants and sums of products."""

import numpy as np

from d5test.reference.formulas.table import Table
from d5test.reference.operators import linear


class GemmPlusC(linear.Gemm):
    """Gemm that is c, not beta c, where the product has no terms."""

    def forward(self, a, b, c=None):
        beta = self.beta if a.size or b.size else 1.0
        return linear.Gemm(**{**vars(self), "beta": beta}).forward(a, b, c)


class SumOfLogarithms(linear.Det):
    """A determinant as the exponential of the sum of its pivots' logarithms, and their sign."""

    def product(self, pivots):
        return np.sign(pivots).prod(-1) * np.exp(np.log(np.abs(pivots)).sum(-1))


class LettersInOrderOfAppearance(linear.Einsum):
    """Einsum without an arrow whose output has its letters as they come, not in the alphabet's."""

    def implicit(self, letters):
        return letters


FORMULAS: Table = {
    "sum of logarithms": {linear.Det: SumOfLogarithms},
    "beta is 1 of nothing": {linear.Gemm: GemmPlusC},
    "letters in order of appearance": {linear.Einsum: LettersInOrderOfAppearance},
}
