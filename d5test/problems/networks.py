"""The problems of real networks, as ONNX operators: what benchdnn, oneDNN's own test, is run on.

`data/shapes.json` names repository and commit, and says what its fields mean. They are sizes only:
a convolution and a product have a bias here, a pooling is both of its kinds, a recurrent layer is
each of the three cells.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from d5test.case import Case, Operator, Tensor
from d5test.problems import Problem
from d5test.reference.operators.attention import Attention
from d5test.reference.operators.linear import Gemm, MatMul
from d5test.reference.operators.normalisation import LRN, BatchNormalization, GroupNormalization
from d5test.reference.operators.recurrent import GRU, LSTM, RNN
from d5test.reference.operators.reductions import LogSoftmax, Softmax
from d5test.reference.operators.windows import (
    AveragePool,
    Conv,
    ConvTranspose,
    GlobalAveragePool,
    MaxPool,
)

Row = dict[str, Any]
LRN_SIZE = 5
"""Channels that are summed; AlexNet's, and those of every network that has the operator."""


@cache
def networks() -> tuple[Problem, ...]:
    """Every problem once, by operator, in the order of the file."""
    data = json.loads(files("d5test.problems").joinpath("data/shapes.json").read_text())
    problems: dict[Case, Problem] = {}
    for table, cases in TABLES.items():
        columns, rows = data[table]["columns"], data[table]["rows"]
        for row in (dict(zip(columns, values, strict=True)) for values in rows):
            source = f"benchdnn's {row['from']}, {data['source']} at {data['commit']}"
            for case in cases(row):
                name = f"{case.op.name}-{len(problems)}"
                problems.setdefault(case, Problem(name, case, source))
    return tuple(problems.values())


def _conv(row: Row) -> Iterator[Case]:
    c, m, group = row["c"], row["m"], row["group"]
    op = Conv(**_windows(row), group=group)
    yield _case(op, (row["n"], c, *row["x"]), (m, c // group, *row["kernel"]), (m,))


def _conv_transpose(row: Row) -> Iterator[Case]:
    c, m, group = row["c"], row["m"], row["group"]
    op = ConvTranspose(**_windows(row), group=group)
    yield _case(op, (row["n"], c, *row["x"]), (c, m // group, *row["kernel"]), (m,))


def _pool(row: Row) -> Iterator[Case]:
    shape = (row["n"], row["c"], *row["x"])
    yield _case(MaxPool(**_windows(row)), shape)
    yield _case(AveragePool(**_windows(row)), shape)
    if row["kernel"] == row["x"] and not any(row["pads"]):
        yield _case(GlobalAveragePool(), shape)


def _windows(row: Row) -> Row:
    names = {"kernel_shape": "kernel", "strides": "strides", "dilations": "dilations"}
    return {name: tuple(row[column]) for name, column in {**names, "pads": "pads"}.items()}


def _batch_normalization(row: Row) -> Iterator[Case]:
    c = (row["c"],)
    scale, bias, mean = Tensor(c), Tensor(c), Tensor(c)
    x = Tensor((row["n"], row["c"], *row["x"]))
    yield Case(BatchNormalization(), (x, scale, bias, mean, Tensor(c, values=("positive",))))


def _group_normalization(row: Row) -> Iterator[Case]:
    c = row["c"]
    op = GroupNormalization(num_groups=row["group"])
    yield _case(op, (row["n"], c, *row["x"]), (c,), (c,))


def _lrn(row: Row) -> Iterator[Case]:
    yield _case(LRN(size=LRN_SIZE), (row["n"], row["c"], *row["x"]))


def _gemm(row: Row) -> Iterator[Case]:
    n, k, m = row["n"], row["k"], row["m"]
    yield _case(Gemm(transB=1), (n, k), (m, k), (m,))


def _matmul(row: Row) -> Iterator[Case]:
    yield _case(MatMul(), *map(tuple, row["shapes"]))


def _attention(row: Row) -> Iterator[Case]:
    q, k, v = map(tuple, row["shapes"])
    if len(q) == 4:  # with axes of heads and of samples, as ONNX has them
        yield _case(Attention(), q, (*k[:-2], k[-1], k[-2]), v)


def _softmax(row: Row) -> Iterator[Case]:
    (shape,) = row["shapes"]
    yield _case(Softmax(), tuple(shape))
    yield _case(LogSoftmax(), tuple(shape))


def _recurrent(row: Row) -> Iterator[Case]:
    h = row["hidden"]
    # weights of this size keep the recurrence stable over its many steps
    small = ("uniform", -1 / h**0.5, 1 / h**0.5)
    for op in (
        RNN(hidden_size=h),
        LSTM(hidden_size=h),
        GRU(hidden_size=h, linear_before_reset=1),
    ):
        x, rows = Tensor((row["steps"], row["batch"], row["input"])), op.gates * h
        sides = (rows, row["input"]), (rows, h), (2 * rows,)
        yield Case(op, (x, *(Tensor((1, *shape), values=small) for shape in sides)))


def _case(op: Operator, *shapes: tuple[int, ...]) -> Case:
    return Case(op, tuple(map(Tensor, shapes)))


TABLES: dict[str, Callable[[Row], Iterator[Case]]] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Pool": _pool,
    "BatchNormalization": _batch_normalization, "GroupNormalization": _group_normalization,
    "LRN": _lrn, "Gemm": _gemm, "MatMul": _matmul, "Attention": _attention, "Softmax": _softmax,
    "Recurrent": _recurrent,
}  # fmt: skip
"""The tables of the file, and what a row of each is."""
