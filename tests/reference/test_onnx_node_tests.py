"""The references against ONNX's own node tests."""

from collections import Counter

import onnx
import pytest

from d5test.problems.node_cases import failure, node_cases, operator_of
from d5test.reference.node import from_node, to_node
from d5test.reference.operators import OPERATORS

UNTESTED = frozenset({
    "GlobalLpPool", "MaxRoiPool", "Multinomial", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike",
})  # fmt: skip
"""Operators of ONNX's domain for which ONNX brings no node test of one node."""


def modelled() -> list[str]:
    return [name for name in node_cases() if operator_of(name)[0] is not None]


@pytest.mark.parametrize("name", modelled())
def test_forward(name: str) -> None:
    assert not failure(name)


def test_nodes_survive_the_way_there_and_back() -> None:
    for name in modelled():
        op, _ = operator_of(name)
        assert op is not None
        (node,) = node_cases()[name].model.graph.node
        written = to_node(op, list(node.input), list(node.output))
        assert from_node(written) == op
        given = list(node.input)
        while not given[-1]:  # left out at the end, or not mentioned: the same
            given.pop()
        assert list(written.input) == given
        assert list(written.output) == list(node.output)


def test_what_is_not_run_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    reasons = Counter(operator_of(name)[1] or "run" for name in node_cases())
    covered = Counter(op.name for name in node_cases() if (op := operator_of(name)[0]) is not None)
    with capsys.disabled():
        print(f"\nONNX {onnx.__version__} node tests: {reasons.total()}")
        for reason, count in reasons.most_common():
            print(f"{count:6} {reason}")
        print("   run:", ", ".join(f"{name} {n}" for name, n in sorted(covered.items())))
    ours = {name for name, cls in OPERATORS.items() if cls.domain == ""}
    assert ours - set(covered) == UNTESTED
    assert reasons["run"] == sum(covered.values()) > 400
