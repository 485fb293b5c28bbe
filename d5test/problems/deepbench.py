"""DeepBench's convolutions, matrix products and recurrent layers, as ONNX operators.

The sizes are Baidu Research's (`data/deepbench.json` names repository, commit and files). What
differs from DeepBench: a recurrent layer here includes the projection of its input, as ONNX's
operators do, and its backward gives the gradients of the input too.
"""

import json
from functools import cache
from importlib.resources import files
from itertools import groupby, islice
from typing import Any

from d5test.case import Case, Operator, Tensor
from d5test.problems import Problem
from d5test.reference.operators.linear import Gemm
from d5test.reference.operators.recurrent import GRU, LSTM, RNN
from d5test.reference.operators.windows import Conv

KINDS = ("Conv", "Gemm", "RNN", "LSTM", "GRU")


@cache
def deepbench() -> tuple[Problem, ...]:
    """Every problem once, by kind and from small to large."""
    data = json.loads(files("d5test.problems").joinpath("data/deepbench.json").read_text())
    problems: dict[str, Problem] = {}
    for kind, make in (("conv", _conv), ("gemm", _gemm), ("rnn", _recurrent)):
        for name in ("training", "inference_server", "inference_device"):
            source = f"DeepBench {name}, {data['source']} at {data['commit']}"
            table = data[name].get(kind, [])
            for row in table["rows"] if isinstance(table, dict) else table:
                problem = make(row, source)
                problems.setdefault(problem.name, problem)
    return tuple(
        sorted(
            problems.values(),
            key=lambda p: (KINDS.index(p.case.op.name), p.multiplications, p.name),
        )
    )


def smallest(count: int = 2) -> tuple[Problem, ...]:
    """The smallest problems of each operator."""
    by_operator = groupby(deepbench(), key=lambda p: p.case.op.name)
    return tuple(p for _, problems in by_operator for p in islice(problems, count))


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
    cells: dict[str, tuple[Operator, int]] = {
        "vanilla": (RNN(hidden_size=hidden, activations=("Relu",)), 1),
        "lstm": (LSTM(hidden_size=hidden), 4),
        "gru": (GRU(hidden_size=hidden, linear_before_reset=1), 3),
    }
    op, gates = cells[cell]
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
