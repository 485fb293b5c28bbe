"""Cases of matrix products: vectors, broadcast batches, transposed factors; einsum's equations."""

from __future__ import annotations

from d5test.case import Tensor
from d5test.reference.operators import linear as ops
from d5test.strategies.draw import MANY, Draw, Shape
from d5test.strategies.registry import attributes, inputs

FACTORS = (1.0, 0.5, -1.25, 2.0)
EQUATIONS = (
    "ij,jk->ik",
    "ij,jk",
    "ij->ji",
    "ij->",
    "i,j->ij",
    "ii->i",
    "ii",
    "iij,jk->k",
    "bij,bjk->bik",
    "bhid,bhjd->bhij",
    "...ij,...jk->...ik",
    "...ij,...jk",
    "i...,i...->...",
    "bA,aB,ab->BA",
    "ij,ik,kl->jl",
    "ij,k->i",
)
"""Products, traces, diagonals, transpositions and sums; letters that stand in one input alone."""


@inputs(ops.MatMul)
def matmul_inputs(d: Draw, op: ops.MatMul) -> tuple[Tensor, Tensor]:
    """Matrices, vectors, and leading axes that broadcast on either side."""
    if d.many():
        m, n = d.sides(2)
        return d.tensor((m, MANY), "positive"), d.tensor((MANY, n), "positive")
    m, k, n = d.sides(3, empty=True)
    leading = d.sides(d.integer(0, 2), most=4)
    a: Shape = (*broadcast(d, leading), m, k)
    b: Shape = (*broadcast(d, leading), k, n)
    a, b = d.choose(((a, b), (a, b), (a, b), (a, b), (a, (k,)), ((k,), b), ((k,), (k,))))
    return d.tensor(a), d.tensor(b)


@attributes(ops.Gemm)
def gemm_attributes(d: Draw) -> ops.Gemm:
    """Both factors, both transpositions."""
    return ops.Gemm(
        alpha=d.choose(FACTORS),
        beta=d.choose(FACTORS),
        transA=d.choose((0, 1)),
        transB=d.choose((0, 1)),
    )


@inputs(ops.Gemm)
def gemm_inputs(d: Draw, op: ops.Gemm) -> tuple[Tensor | None, ...]:
    """With a c of any shape that broadcasts, with None in its place, and with neither."""
    m, k, n = d.sides(3, empty=True)
    k, regimes = (MANY, ("positive",)) if d.many() else (k, ())
    a = d.tensor((k, m) if op.transA else (m, k), *regimes)
    b = d.tensor((n, k) if op.transB else (k, n), *regimes)
    c = d.maybe(d.tensor(broadcast(d, (m, n))))
    return (a, b, c) if c is not None or d.flag() else (a, b)


@attributes(ops.Einsum)
def einsum_attributes(d: Draw) -> ops.Einsum:
    """One of the equations, also with spaces."""
    equation = d.choose(EQUATIONS)
    return ops.Einsum(equation=equation.replace(",", " , ") if d.flag() else equation)


@inputs(ops.Einsum)
def einsum_inputs(d: Draw, op: ops.Einsum) -> tuple[Tensor, ...]:
    """A size for each letter; up to two axes, broadcast, for an ellipsis."""
    terms = op.equation.replace(" ", "").partition("->")[0].split(",")
    letters = sorted(set("".join(terms)) - {"."})
    size = dict(zip(letters, d.sides(len(letters), most=5, empty=True), strict=True))
    ellipsis = d.sides(d.integer(0, 2), most=4)
    many = d.many()
    if many:
        size[d.choose(letters)] = MANY
    shapes: list[Shape] = []
    for term in terms:
        before, dots, after = term.partition("...")
        # Every ellipsis stands for the same number of axes.
        ones = d.flag()
        middle = tuple(1 if ones and d.flag() else n for n in ellipsis) if dots else ()
        shapes.append((*(size[k] for k in before), *middle, *(size[k] for k in after)))
    return tuple(d.tensor(shape, *(("positive",) if many else ())) for shape in shapes)


def broadcast(d: Draw, shape: Shape) -> Shape:
    """The shape itself or one that broadcasts to it."""
    return d.broadcastable(shape) if d.flag() else shape
