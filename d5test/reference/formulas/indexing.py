"""Indices of extrema, and gradients of what is scattered."""

import numpy as np

from d5test.reference.formulas.table import Table, mixed
from d5test.reference.operators import indexing


class AnyOfEqual(indexing.Index):
    """The index of an extremum, of equal ones that of any."""

    def chosen(self, x):
        order = np.argsort(-x if isinstance(self, indexing.ArgMax) else x, self.axis)
        return np.take(order, [0], self.axis)


class TakenAwayInShares(indexing.Scatter):
    """A maximum or minimum of what is scattered, whose gradient is first all of the data's.

    Each of n updates of an element takes an nth away: what is left of a replaced one is rounding.
    """

    def backward(self, grads, inputs, outputs):
        (dy,), (data, indices, _) = grads, inputs
        dx, *others = super().backward(grads, inputs, outputs)
        places = self.places(data.shape, indices)
        updates = np.zeros(data.shape)
        np.add.at(updates, places, 1.0)
        taken = indexing.added(dy[places] / updates[places], places, data.shape)
        return dx + (taken - taken), *others


FORMULAS: Table = {
    "any of equal": mixed(AnyOfEqual, indexing.ArgMax, indexing.ArgMin),
    "taken away in shares": mixed(TakenAwayInShares, indexing.ScatterElements, indexing.ScatterND),
}
