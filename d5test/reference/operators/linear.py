"""Products of matrices and tensors."""

import functools
import itertools
import math
import string
from dataclasses import dataclass

import numpy as np

from d5test.case import Batch, Operator
from d5test.reference.operators.broadcasting import plain, unbroadcast

__all__ = ["Einsum", "Gemm", "MatMul"]
__all__ += ["Det"]


@dataclass(frozen=True, kw_only=True, repr=False)
class MatMul(Operator):
    """Matrix products over broadcast leading axes, as `numpy.matmul`. ONNX MatMul-13.

    a: (..., m, k) or (k,), b: (..., k, n) or (k,); y: (..., m, n), without m or n for a vector.
    """

    since = 13

    def forward(self, a, b):
        return a @ b

    def backward(self, grads, inputs, outputs):
        (dy,), (a, b) = grads, inputs
        dy = np.expand_dims(dy, -1) if b.ndim == 1 else dy
        dy = np.expand_dims(dy, -2) if a.ndim == 1 else dy
        rows = a.reshape(1, -1) if a.ndim == 1 else a
        columns = b.reshape(-1, 1) if b.ndim == 1 else b
        da = _product(dy, columns.swapaxes(-1, -2), rows.shape)
        db = _product(rows.swapaxes(-1, -2), dy, columns.shape)
        return da.reshape(a.shape), db.reshape(b.shape)

    def batch(self, *shapes):
        a, b = shapes
        if len(a) < 2 or len(a) < len(b):
            return None
        if len(b) == len(a) > 2 and b[0] != 1:
            return Batch((0, 0), (0,)) if a[0] == b[0] else None
        return Batch((0, None), (0,))

    def multiplications(self, *shapes):
        a, b = shapes
        rows, columns = a if len(a) > 1 else (1, *a), b if len(b) > 1 else (*b, 1)
        leading = np.broadcast_shapes(rows[:-2], columns[:-2])
        return math.prod(leading) * math.prod(rows[-2:]) * columns[-1]


@dataclass(frozen=True, kw_only=True, repr=False)
class Gemm(Operator):
    """alpha a b + beta c, with a or b transposed. ONNX Gemm-13.

    a: (m, k), b: (k, n), after transposition; c broadcasts to y: (m, n).
    """

    alpha: float = 1.0
    beta: float = 1.0
    transA: int = 0  # noqa: N815 - ONNX's name
    transB: int = 0  # noqa: N815 - ONNX's name
    since = 13

    def forward(self, a, b, c=None):
        a, b = a.T if self.transA else a, b.T if self.transB else b
        if c is None:
            return self.alpha * (a @ b)
        return (self.alpha * a) @ b + self.beta * c

    def backward(self, grads, inputs, outputs):
        (dy,), (a, b, *rest) = grads, inputs
        a, b = a.T if self.transA else a, b.T if self.transB else b
        # alpha is a factor of each term, as in the forward: it may be multiplied by first
        da, db = (self.alpha * dy) @ b.T, a.T @ (self.alpha * dy)
        dc = (None if c is None else unbroadcast(self.beta * dy, c.shape) for c in rest)
        return da.T if self.transA else da, db.T if self.transB else db, *dc

    def batch(self, *shapes):
        a, _, *rest = shapes
        (c,) = rest or (None,)
        along = 0 if c is not None and len(c) == 2 and c[0] == a[self.transA] else None
        if c is not None and len(c) == 2 and c[0] == 1 == a[self.transA]:
            return None
        return Batch((self.transA, None, *(along for _ in rest)), (0,))

    def multiplications(self, *shapes):
        a, b = shapes[:2]
        return math.prod(a) * b[not self.transB]


@dataclass(frozen=True, kw_only=True, repr=False)
class Einsum(Operator):
    """Sums of products in Einstein's notation. ONNX Einsum-28.

    `equation` names the axes of each input by letters; an ellipsis stands for leading axes that
    broadcast. Without an arrow the output has the ellipsis' axes and the letters that occur
    once, in alphabetical order. A letter that occurs twice in one input takes its diagonal.

    The gradient of one input is an einsum of the upstream gradient with the other inputs.
    """

    equation: str
    since = 28

    def forward(self, *inputs):
        terms, out = self._terms([x.ndim for x in inputs])
        return np.einsum(f"{','.join(terms)}->{out}", *inputs)

    def backward(self, grads, inputs, outputs):
        (dy,) = grads
        terms, out = self._terms([x.ndim for x in inputs])
        size: dict[str, int] = {}
        for term, x in zip(terms, inputs, strict=True):
            for letter, n in zip(term, x.shape, strict=True):
                size[letter] = max(n, size.get(letter, n)) if n else 0
        return tuple(self._gradient(i, dy, inputs, terms, out, size) for i in range(len(inputs)))

    def _gradient(self, i, dy, inputs, terms, out, size):
        term, x = terms[i], inputs[i]
        others = [j for j in range(len(inputs)) if j != i]
        sources = [out, *(terms[j] for j in others)]
        letters = "".join(dict.fromkeys(term))
        kept = "".join(letter for letter in letters if any(letter in s for s in sources))
        dx = np.einsum(f"{','.join(sources)}->{kept}", dy, *(inputs[j] for j in others))
        # A letter found nowhere else was summed away: every element gets the same.
        dx = dx.reshape(tuple(dx.shape[kept.index(k)] if k in kept else 1 for k in letters))
        dx = np.broadcast_to(dx, tuple(size[letter] for letter in letters))
        dx = unbroadcast(dx, tuple(x.shape[term.index(letter)] for letter in letters))
        if letters == term:
            return dx
        diagonal = np.ix_(*(range(x.shape[term.index(letter)]) for letter in letters))
        full = np.zeros_like(dx, shape=x.shape)
        full[tuple(diagonal[letters.index(letter)] for letter in term)] = dx
        return full

    def implicit(self, letters):
        """The letters of an output that the equation does not have, from those that occur once."""
        return sorted(letters)

    def _terms(self, ranks):
        """The letters of each input and of the output, ellipses replaced by letters."""
        left, arrow, out = self.equation.replace(" ", "").partition("->")
        terms = left.split(",")
        free = [c for c in reversed(string.ascii_letters) if c not in self.equation]
        covered = [r - len(t) + 3 if "..." in t else 0 for t, r in zip(terms, ranks, strict=True)]
        ellipsis = "".join(free[: max(covered, default=0)])
        if not arrow:
            letters = left.replace(".", "").replace(",", "")
            out = "..." + "".join(self.implicit([k for k in letters if letters.count(k) == 1]))
        terms = [
            t.replace("...", ellipsis[len(ellipsis) - n :])
            for t, n in zip(terms, covered, strict=True)
        ]
        return terms, out.replace("...", ellipsis)


EXPANDED = 3
"""Rows of a matrix up to which some libraries add all products."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Det(Operator):
    """The determinant of matrices, (..., m, m) to (...). ONNX Det-22.

    By elimination with partial pivoting, of rows or of columns, and up to three rows by the sum of
    all products: a library's choice, so that each is computed, and the bar is the largest of
    theirs. The gradient is dy times the cofactors, which frameworks have as det(x) x^-T.
    """

    since = 22

    def forward(self, x):
        eliminated = [self.product(pivots_of(a)) for a in (x, x.swapaxes(-1, -2))]
        expanded = [sum_of_products(x)] if x.shape[-1] <= EXPANDED else []
        return functools.reduce(np.maximum, eliminated + expanded)

    def backward(self, grads, inputs, outputs):
        (dy,), (x,) = grads, inputs
        m = np.arange(x.shape[-1])
        others = np.array([np.delete(m, i) for i in m], int).reshape(m.size, max(m.size - 1, 0))
        minors = x[..., others[:, None, :, None], others[:, None, :]]
        cofactors = self.forward(minors) * (-1.0) ** np.add.outer(m, m)
        return (np.expand_dims(dy, (-1, -2)) * cofactors,)

    def other_backward(self, grads, inputs):
        (dy,), (x,) = grads, inputs
        by_columns = inverted(x.swapaxes(-1, -2))
        inverse = np.maximum(inverted(x).swapaxes(-1, -2), by_columns)
        return (np.expand_dims(dy * self.forward(x), (-1, -2)) * inverse,)

    def product(self, pivots):
        """The determinant."""
        return pivots.prod(-1)

    def batch(self, *shapes):
        return Batch((0,), (0,)) if len(shapes[0]) > 2 else None


def sum_of_products(x):
    """The determinant by Leibniz's formula: one product for each permutation of the columns."""
    m = range(x.shape[-1])
    terms = [np.ones(x.shape[:-2])] if not m else []
    for columns in itertools.permutations(m) if m else ():
        odd = sum(columns[i] > columns[j] for i, j in itertools.combinations(m, 2)) % 2
        term = functools.reduce(np.multiply, [x[..., i, columns[i]] for i in m])
        terms.append(-term if odd else term)
    return np.concatenate([term[..., None] for term in terms], -1).sum(-1)


def pivots_of(x):
    """The pivots (..., m) of elimination, negative where rows are exchanged.

    What is left of an element is a sum of products, which libraries add in any order (Doolittle).
    Which rows are exchanged is no part of the formula: plain numbers decide that.
    """
    m = x.shape[-1]
    lower, upper = np.zeros_like(x), np.zeros_like(x)
    pivots = np.zeros_like(x, shape=x.shape[:-1])
    for k in range(m):
        column = left_of(x[..., :, k], lower[..., :k] * upper[..., None, :k, k])
        order = exchanged(plain(column), k)
        x, lower = (np.take_along_axis(a, order[..., None], -2) for a in (x, lower))
        column = np.take_along_axis(column, order, -1)
        pivot = column[..., k : k + 1]
        pivots[..., k] = np.where(order[..., k : k + 1] == k, pivot, -pivot)[..., 0]
        lower[..., k] = column * reciprocal(pivot)
        above = np.swapaxes(upper[..., :k, :], -1, -2)
        upper[..., k, :] = left_of(x[..., k, :], lower[..., k, None, :k] * above)
    return pivots


def left_of(x, products):
    """x less the products (..., k) along their last axis, added in any order."""
    return np.concatenate((x[..., None], -products), -1).sum(-1)


def exchanged(column, k):
    """The order of rows in which the largest of a column from k on stands at k."""
    order = np.broadcast_to(np.arange(column.shape[-1]), column.shape).copy()
    largest = k + np.argmax(np.abs(column[..., k:]), -1)[..., None]
    np.put_along_axis(order, largest, k, -1)
    order[..., k] = largest[..., 0]
    return order


def reciprocal(pivot):
    """As LAPACK's xGETF2 divides: by one rounding more than a quotient has."""
    return 1 / np.where(plain(pivot) == 0, np.ones_like(pivot), pivot)


def inverted(x):
    """The inverses of x (..., m, m), by elimination of all other rows; NaN where there is none."""
    m = x.shape[-1]
    rows = np.concatenate((x, np.broadcast_to(np.eye(m), x.shape)), -1)
    for k in range(m):
        order = exchanged(plain(rows[..., :, k]), k)
        rows = np.take_along_axis(rows, order[..., None], -2)
        pivot = rows[..., k : k + 1, k]
        scale = np.where(plain(pivot) == 0, np.full_like(pivot, np.nan), reciprocal(pivot))
        row = rows[..., k : k + 1, :] * np.expand_dims(scale, -1)
        rows = rows - rows[..., k : k + 1] * row
        rows[..., k : k + 1, :] = row
    return rows[..., m:]


def _product(a, b, shape):
    """a @ b summed to `shape` over the axes along which that factor was broadcast.

    Leading axes are summed over together with the inner one: in any order, axis after axis too.
    """
    leading = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    kept = (1,) * (len(leading) + 2 - len(shape)) + shape[:-2]
    if kept == leading:
        return a @ b
    if len(shape) == 2 and a.ndim == b.ndim:
        axes = (*range(a.ndim - 2),)
        return np.tensordot(a, b, ((*axes, a.ndim - 1), (*axes, b.ndim - 2)))
    letters = string.ascii_lowercase[: len(leading)]
    of_a, of_b = (letters[len(letters) + 2 - x.ndim :] for x in (a, b))
    out = "".join(c for c, n, k in zip(letters, leading, kept, strict=True) if n == k)
    return np.einsum(f"{of_a}XY,{of_b}YZ->{out}XZ", a, b).reshape(shape)
