"""The update rules against ONNX's training operators, and against each other where they meet."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from d5test.numerics.arithmetic import classes
from d5test.numerics.bars import Bar
from d5test.reference.optimizers import (
    OPTIMIZERS,
    AdaGrad,
    Adam,
    AdamW,
    GradientDescent,
    Momentum,
    Nesterov,
    Optimizer,
    State,
)

DOMAIN = "ai.onnx.preview.training"
(DOUBLE,) = classes("float64")
Array = np.ndarray[Any, Any]


def rule_of(node: onnx.NodeProto, lr: float, t: int) -> tuple[Optimizer, int]:
    """The rule that a node of ONNX applies in its update number `t`, and the step that this is."""
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    decay = given["norm_coefficient"]
    assert not given.get("norm_coefficient_post")
    if node.op_type == "Adagrad":
        rule: Optimizer = AdaGrad(
            lr=lr, epsilon=given["epsilon"], lr_decay=given["decay_factor"], weight_decay=decay
        )
        return rule, t + 1
    if node.op_type == "Momentum":
        kind = {b"standard": Momentum, b"nesterov": Nesterov}[given["mode"]]
        damped = 1 - given["beta"]
        return kind(lr=lr, momentum=given["alpha"], dampening=damped, weight_decay=decay), t + 1
    rule = Adam(
        lr=lr, beta1=given["alpha"], beta2=given["beta"], epsilon=given["epsilon"],
        epsilon_hat=True, bias_correction=t > 0, weight_decay=decay,
    )  # fmt: skip
    return rule, t


def updated(node: onnx.NodeProto, inputs: list[Array]) -> list[Array]:
    """What our rule makes of a node's inputs: R, T, then parameters, gradients, slots."""
    lr, t, *arrays = inputs
    rule, step = rule_of(node, float(lr), int(t))
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
        got = updated(node, [array(x) for x in inputs])
        assert len(got) == len(expected)
        for mine, want in zip(got, expected, strict=True):
            np.testing.assert_allclose(mine, array(want), rtol=test.rtol, atol=test.atol)


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
    for mine, theirs in zip(updated(made, lifted), want, strict=True):
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
