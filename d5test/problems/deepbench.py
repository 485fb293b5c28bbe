"""DeepBench's convolutions, matrix products and recurrent layers, as ONNX operators.

The sizes are Baidu Research's (`data/deepbench.json` names repository, commit and files). What
differs from DeepBench: a recurrent layer here includes the projection of its input, as ONNX's
operators do, and its backward gives the gradients of the input too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from d5test.case import Case, Operator, Tensor
from d5test.problems.problem import Problem
from d5test.reference.operators.convolution import Conv
from d5test.reference.operators.linear import Gemm
from d5test.reference.operators.recurrent import GRU, LSTM, RNN

SETS = ("training", "inference_server", "inference_device")


@cache
def deepbench() -> tuple[Problem, ...]:
    """Every problem once, by kind and from small to large."""
    data = json.loads(files("d5test.problems").joinpath("data/deepbench.json").read_text())
    found: dict[str, Problem] = {}
    for kind, make in (("conv", _conv), ("gemm", _gemm), ("rnn", _recurrent)):
        for problem in _rows(data, kind, make):
            found.setdefault(problem.name, problem)
    kinds = {name: i for i, name in enumerate(("Conv", "Gemm", "RNN", "LSTM", "GRU"))}
    return tuple(
        sorted(found.values(), key=lambda p: (kinds[p.case.op.name], p.multiplications, p.name))
    )


def smallest(count: int = 2) -> tuple[Problem, ...]:
    """The smallest problems of each operator."""
    by_operator: dict[str, list[Problem]] = {}
    for problem in deepbench():
        by_operator.setdefault(problem.case.op.name, []).append(problem)
    return tuple(p for problems in by_operator.values() for p in problems[:count])


def _rows(data: dict[str, Any], kind: str, make: Any) -> Iterator[Problem]:
    for name in SETS:
        table = data[name].get(kind, [])
        rows = table["rows"] if isinstance(table, dict) else table
        for row in rows:
            yield make(row, f"DeepBench {name}, {data['source']} at {data['commit']}")


def _conv(row: list[int], source: str) -> Problem:
    w, h, c, n, k, s, r, pad_w, pad_h, stride_w, stride_h = row
    op = Conv(kernel_shape=(r, s), strides=(stride_h, stride_w), pads=(pad_h, pad_w) * 2)
    name = f"conv-n{n}-c{c}-h{h}-w{w}-k{k}-{r}x{s}-s{stride_h}x{stride_w}-p{pad_h}x{pad_w}"
    return _problem(name, op, source, Tensor((n, c, h, w)), Tensor((k, c, r, s)))


def _gemm(row: list[Any], source: str) -> Problem:
    m, n, k, trans_a, trans_b = row
    op = Gemm(transA=int(trans_a), transB=int(trans_b))
    name = f"gemm-m{m}-n{n}-k{k}-{'t' if trans_a else 'n'}{'t' if trans_b else 'n'}"
    a, b = ((k, m) if trans_a else (m, k)), ((n, k) if trans_b else (k, n))
    return _problem(name, op, source, Tensor(a), Tensor(b))


def _recurrent(row: list[Any], source: str) -> Problem:
    hidden, batch, steps, cell = row
    op: Operator = {
        "vanilla": RNN(hidden_size=hidden, activations=("Relu",)),
        "lstm": LSTM(hidden_size=hidden),
        "gru": GRU(hidden_size=hidden, linear_before_reset=1),
    }[cell]
    gates = {"vanilla": 1, "lstm": 4, "gru": 3}[cell]
    # weights of this size keep the recurrence stable over its many steps
    small = ("uniform", -1 / hidden**0.5, 1 / hidden**0.5)
    return _problem(
        f"{cell}-hidden{hidden}-batch{batch}-steps{steps}",
        op,
        source,
        Tensor((steps, batch, hidden)),
        Tensor((1, gates * hidden, hidden), values=small),
        Tensor((1, gates * hidden, hidden), values=small),
        Tensor((1, 2 * gates * hidden), values=small),
    )


def _problem(name: str, op: Operator, source: str, *inputs: Tensor) -> Problem:
    return Problem(name, Case(op, inputs), source)
