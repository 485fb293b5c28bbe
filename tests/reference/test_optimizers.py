"""The update rules against ONNX's training operators, and against each other where they meet."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from d5test.case import Case
from d5test.numerics.arithmetic import classes
from d5test.numerics.bars import Bar
from d5test.numerics.bounds import forward_bounds
from d5test.numerics.judgement import judge
from d5test.reference.node import from_node
from d5test.reference.operators import OPERATORS
from d5test.reference.optimizers import (
    OPTIMIZERS,
    AdaGrad,
    Adam,
    AdamW,
    AMSGrad,
    GradientDescent,
    Momentum,
    Nesterov,
    Optimizer,
    State,
)
from d5test.strategies import cases

DOMAIN = "ai.onnx.preview.training"
(DOUBLE,) = classes("float64")
Array = np.ndarray[Any, Any]


def rule_of(op: Any, lr: float, t: int) -> tuple[Optimizer, int]:
    """The rule that an operator of ONNX applies in its update number `t`, and its step."""
    decay = op.norm_coefficient
    if op.name == "AdagradUpdate":
        rule: Optimizer = AdaGrad(
            lr=lr, epsilon=op.epsilon, lr_decay=op.decay_factor, weight_decay=decay
        )
        return rule, t + 1
    if op.name == "MomentumUpdate":
        kind = {"standard": Momentum, "nesterov": Nesterov}[op.mode]
        damped = 1 - op.beta
        return kind(lr=lr, momentum=op.alpha, dampening=damped, weight_decay=decay), t + 1
    assert not op.norm_coefficient_post  # which no rule has
    rule = Adam(
        lr=lr, beta1=op.alpha, beta2=op.beta, epsilon=op.epsilon,
        epsilon_hat=True, bias_correction=t > 0, weight_decay=decay,
    )  # fmt: skip
    return rule, t


def updated(op: Any, inputs: Sequence[Any]) -> list[Any]:
    """What our rule makes of an operator's inputs: R, T, then parameters, gradients, slots."""
    lr, t, *arrays = inputs
    rule, step = rule_of(op, float(lr), int(t))
    each = 2 + len(rule.slots)
    count = len(arrays) // each
    results = [rule.apply(np, step, *arrays[i::count]) for i in range(count)]
    return [result[k] for k in range(each - 1) for result in results]


def node_tests() -> Iterator[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for test in load_model_tests(kind="node"):
            if any(node.domain == DOMAIN for node in test.model.graph.node):
                yield test


TESTS = {test.name: test for test in node_tests()}


def array(value: Any) -> Array:
    value = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    return np.asarray(value, np.float64)


@pytest.mark.parametrize("name", TESTS)
def test_onnx_node_test(name: str) -> None:
    test = TESTS[name]
    (node,) = test.model.graph.node
    for inputs, expected in test.data_sets:
        got = updated(from_node(node), [array(x) for x in inputs])
        assert len(got) == len(expected)
        for mine, want in zip(got, expected, strict=True):
            np.testing.assert_allclose(mine, array(want), rtol=test.rtol, atol=test.atol)


@pytest.mark.parametrize("kind", ["AdagradUpdate", "AdamUpdate", "MomentumUpdate"])
def test_an_operator_and_the_rule_agree(kind: str) -> None:
    """In all that both have: ONNX alone shrinks weights after an update."""

    whole: dict[str, Any] = {"norm_coefficient_post": (0.0,)} if kind == "AdamUpdate" else {}

    @settings(max_examples=50, deadline=None, database=None, derandomize=True)
    @given(cases(OPERATORS[kind], "float64", attributes=whole))
    def every(case: Case) -> None:
        arrays = case.arrays()
        judgement = judge(forward_bounds(case.op, arrays, DOUBLE), updated(case.op, arrays))
        assert judgement.right, judgement

    every()


def test_every_kind_of_onnx_was_met() -> None:
    kinds = {node.op_type for test in TESTS.values() for node in test.model.graph.node}
    assert kinds == {"Adagrad", "Adam", "Momentum"}


NODES = {
    "Adam": {"alpha": 0.875, "beta": 0.96875, "epsilon": 0.0625},
    "Adagrad": {"decay_factor": 0.25, "epsilon": 0.0625},
    "Momentum": {"alpha": 0.875, "beta": 0.75, "mode": "standard"},
    "Nesterov": {"alpha": 0.875, "beta": 1.0, "mode": "nesterov"},
}


@pytest.mark.parametrize("t", [0, 1, 7])
@pytest.mark.parametrize("name", NODES)
def test_onnx_evaluator_in_float64(name: str, t: int) -> None:
    """Update counts that the node tests leave out: theirs are all 0."""
    kind = "Momentum" if name == "Nesterov" else name
    state = ["V", "H"] if name == "Adam" else ["H"]
    names = ["R", "T", "X", "G", *state]
    made = helper.make_node(
        kind, names, [f"{n}_new" for n in ("X", *state)], domain=DOMAIN,
        norm_coefficient=0.125, **NODES[name],
    )  # fmt: skip
    random = np.random.default_rng(5)
    arrays = [random.standard_normal((2, 3)) for _ in names[2:4]]
    slots = [random.random((2, 3)) for _ in state]
    inputs = [np.float64(0.5), np.int64(t), *arrays, *slots]
    types = [onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64]
    graph = helper.make_graph(
        [made],
        "one",
        [helper.make_tensor_value_info(n, types[n == "T"], None) for n in names],
        [helper.make_tensor_value_info(n, types[0], None) for n in made.output],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    want = ReferenceEvaluator(model).run(None, dict(zip(names, inputs, strict=True)))
    lifted = [inputs[0], inputs[1], *(Bar(x, arithmetic=DOUBLE) for x in (*arrays, *slots))]
    for mine, theirs in zip(updated(from_node(made), lifted), want, strict=True):
        assert (np.abs(mine.value - theirs) <= mine.companion).all()
        assert (np.abs(mine.value - inputs[2]) > mine.companion).all()


def stepped(rule: Optimizer, steps: int) -> dict[str, Bar]:
    """Two parameters, with their error bars, after some steps with drawn gradients."""
    random = np.random.default_rng(2)

    def drawn() -> dict[str, Bar]:
        shapes = {"w": (3, 5), "b": (5,)}
        return {
            name: Bar(random.standard_normal(shape), arithmetic=DOUBLE)
            for name, shape in shapes.items()
        }

    parameters = drawn()
    state = rule.start(np, parameters)
    for _ in range(steps):
        parameters, state = rule.update(np, parameters, drawn(), state)
    assert state.t == steps
    return parameters


def share_apart(one: dict[str, Bar], other: dict[str, Bar]) -> float:
    """The share of elements that differ by more than both bars."""
    outside = [
        np.abs(w.value - other[name].value) > w.full_companion() + other[name].full_companion()
        for name, w in one.items()
    ]
    return float(np.mean(np.concatenate([found.ravel() for found in outside])))


SAME = [
    (Momentum(lr_in_velocity=True), Momentum()),
    (Nesterov(lr_in_velocity=True), Nesterov()),
    (Momentum(momentum=0.0), GradientDescent()),
    (AdamW(weight_decay=0.0), Adam()),
    (AMSGrad(largest_corrected=True), AMSGrad()),  # where nothing is corrected
    (Adam(epsilon=0.0, epsilon_hat=True), Adam(epsilon=0.0)),
    (AdaGrad(epsilon=0.0, epsilon_inside=True), AdaGrad(epsilon=0.0)),
    (GradientDescent(weight_decay=0.5, decoupled=True), GradientDescent(weight_decay=0.5)),
]
DIFFERENT = [
    (Nesterov(), Momentum()),
    (Momentum(dampening=0.5), Momentum()),
    (AdamW(), Adam(weight_decay=0.01)),
    (Adam(beta1=0.999, beta2=0.9), Adam()),
    (Adam(bias_correction=False), Adam()),
    (Adam(epsilon=0.125, epsilon_hat=True), Adam(epsilon=0.125)),
    (AMSGrad(beta2=0.5, bias_correction=True), Adam(beta2=0.5)),
    (AMSGrad(bias_correction=True), AMSGrad()),
    (AdaGrad(accumulator=0.1), AdaGrad()),
    (AdaGrad(lr_decay=0.5), AdaGrad()),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_variants_that_are_the_same(one: Optimizer, other: Optimizer) -> None:
    assert share_apart(stepped(one, 9), stepped(other, 9)) == 0
    assert share_apart(stepped(one, 9), stepped(other, 8)) == 1


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_variants_that_are_not(one: Optimizer, other: Optimizer) -> None:
    assert share_apart(stepped(one, 9), stepped(other, 9)) == 1


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_nothing_is_overwritten(name: str) -> None:
    rule = OPTIMIZERS[name](weight_decay=0.125)
    random = np.random.default_rng(3)
    w, g, *slots = (random.random((3, 5)) for _ in range(2 + len(rule.slots)))
    kept = [x.copy() for x in (w, g, *slots)]
    state = State(4, {"w": tuple(slots)})
    new, after = rule.update(np, {"w": w}, {"w": g}, state)
    assert all(np.array_equal(x, was) for x, was in zip((w, g, *slots), kept, strict=True))
    assert not np.array_equal(new["w"], w)
    assert state.t == 4
    assert after.t == 5
