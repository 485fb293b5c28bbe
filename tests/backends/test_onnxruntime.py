"""ONNX Runtime behind `onnx.backend`: what it computes, what it lacks, and what is a fault."""

from dataclasses import fields
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx.reference import ReferenceEvaluator

from d5test.backends.base import Unsupported, bits
from d5test.backends.onnx import ML, OnnxBackend
from d5test.case import Case, Tensor, dtype_of
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import forward_bounds
from d5test.numerics.judgement import Judgement, tightest
from d5test.processor import adds_pairs_in_16_bits
from d5test.reference.formulas import computed
from d5test.reference.operators import OPERATORS
from d5test.strategies import cases

pytest.importorskip("onnxruntime")

from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from d5test.backends.onnxruntime import OnnxRuntime
from d5test.worker.bound import OperatorView

BACKEND = OnnxRuntime()
NAMES = sorted(name for name, operator in OPERATORS.items() if operator.domain in ("", ML))


def judged(case: Case, formula: str = "") -> Judgement:
    """By ONNX's reference, or by another formula."""
    view = OperatorView(case.op.name, {f.name: getattr(case.op, f.name) for f in fields(case.op)})
    arrays = case.arrays()
    tensors = [None if x is None else BACKEND.put(*bits(x)) for x in arrays]
    outputs = [BACKEND.get(y) for y in BACKEND.rows[case.op.name].call(view, *tensors)]
    return tightest(
        classes(case.dtype, ulps=BACKEND.ulps),
        lambda arithmetic: forward_bounds(computed(case.op, formula, inf), arrays, arithmetic),
        [y.view(dtype_of(dtype)) if dtype == "bfloat16" else y for y, dtype in outputs],
    )[0]


def tensor(*shape: int, values: tuple[Any, ...] = ("normal",), dtype: str = "float32") -> Tensor:
    return Tensor(shape, dtype, values)


def made(name: str, *inputs: Tensor | None, **attributes: Any) -> Case:
    return Case(OPERATORS[name](**attributes), inputs, seed=1)


STUMP: dict[str, Any] = {
    "leaf_targetids": (0, 1), "leaf_weights": ("float32", (2,), (1.0, 2.0)), "n_targets": 2,
    "nodes_falseleafs": (1,), "nodes_falsenodeids": (1,), "nodes_trueleafs": (1,),
    "nodes_truenodeids": (0,), "nodes_featureids": (0,), "tree_roots": (0,),
    "nodes_splits": ("float32", (1,), (0.0,)),
}  # fmt: skip
"""A tree of one node, but for its mode."""

FAULTS = {
    "the logistic function is taken for the softmax": made(
        "TreeEnsemble", tensor(3, 1), nodes_modes=("uint8", (1,), (0,)), post_transform=1, **STUMP
    ),
    "a set of whole numbers has numbers between them": made(
        "TreeEnsemble",
        Tensor((1, 1), data=(2.5,)),
        nodes_modes=("uint8", (1,), (6,)),
        membership_values=("float32", (3,), (-1.0, 2.0, float("nan"))),
        **STUMP,
    ),
    "the sigmoid is zero below -18": made("Sigmoid", Tensor((3,), data=(-18.5, -20.0, 1.0))),
    "the sigmoid's tail costs an LSTM its accuracy": made(
        "LSTM",
        Tensor((1, 1, 1), data=(1.0,)),
        Tensor((1, 4, 1), data=(-15.0, 3.0, 2.0, 1.0)),
        Tensor((1, 4, 1), data=(0.0, 0.0, 0.0, 0.0)),
        hidden_size=1,
    ),
    "SAME padding of pools forgets dilations": made(
        "MaxPool",
        tensor(2, 3, 7),
        kernel_shape=(3,),
        dilations=(2,),
        auto_pad="SAME_UPPER",
    ),
    "a variance is a difference of squares": made(
        "GroupNormalization",
        tensor(2, 6, 5, values=("offset",)),
        tensor(6),
        tensor(6),
        num_groups=3,
    ),
    "a mask may not be shorter than the keys": made(
        "Attention",
        tensor(2, 2, 3, 4),
        tensor(2, 2, 5, 4),
        tensor(2, 2, 5, 4),
        tensor(3, 4, dtype="bool", values=("mask",)),
    ),
    "LRN takes odd windows only": made("LRN", tensor(2, 3, 4, 5), size=2),
    "LRN takes two spatial axes only": made("LRN", tensor(2, 3, 4), size=3),
}
"""What ONNX Runtime 1.31 gets wrong, each in its smallest case."""

TOUCHED = {"AveragePool", "BatchNormalization", "DFT", "GRU"} | {
    case.op.name for case in FAULTS.values()
}
PAIRS = {"ConvInteger", "MatMulInteger", "QLinearMatMul"}
IN_PAIRS = PAIRS if adds_pairs_in_16_bits() else set()
"""What saturates on processors without VNNI: a row of the known failures has the formula."""
RANDOM = {name for name, cls in OPERATORS.items() if cls.random}
"""Those that have a distribution, and no value."""

LACKING = {"GlobalLpPool", "MaxRoiPool", "RoiAlign", "Swish"}
"""Operators of which ONNX Runtime 1.31 has no kernel in this operator set."""
MASKED = {"Dropout"}
"""Half of its cases bring a mask, which ONNX's does not take."""

DECLARED = [
    (name, dtype)
    for name in NAMES
    for dtype in ("float32", "float16")
    if name not in TOUCHED | LACKING | RANDOM | IN_PAIRS | MASKED
    and name in BACKEND.rows  # those of newer operator sets than its own are not
    and dtype in BACKEND.rows[name].dtypes
]


@pytest.mark.parametrize("name,dtype", DECLARED)
def test_a_row_is_inside_the_bars(name: str, dtype: str) -> None:
    judged_cases = []

    @settings(max_examples=25, deadline=None, database=None, derandomize=True)
    @given(case=cases(OPERATORS[name], dtype))
    def every(case: Case) -> None:
        try:
            judgement = judged(case)
        except Unsupported:
            return
        judged_cases.append(case)
        assert judgement.right, judgement
        assert judgement.arithmetic <= BACKEND.rows[name].arithmetic

    every()
    assert len(judged_cases) > 3


def test_pairs_saturate_at_16_bits_where_the_processor_lacks_vnni() -> None:
    a, b = Tensor((1, 2), "uint8", data=(255, 255)), Tensor((2, 1), "int8", data=(127, 127))
    judgement = judged(made("MatMulInteger", a, b, None, None))
    assert judgement.right != adds_pairs_in_16_bits()
    if not judgement.right:
        assert (judgement.got, judgement.want) == (32767, 64770)
    assert ("pairs_in_16_bits" in BACKEND.describe_device()) == adds_pairs_in_16_bits()


@pytest.mark.skipif(not adds_pairs_in_16_bits(), reason="the processor has VNNI, or is no x86")
@pytest.mark.parametrize("name", sorted(PAIRS))
def test_what_saturates_is_its_formula_to_the_last_bit(name: str) -> None:
    judged_cases = []

    @settings(max_examples=100, deadline=None, database=None, derandomize=True)
    @given(case=cases(OPERATORS[name], "float32"))
    def every(case: Case) -> None:
        try:
            judgement = judged(case, "pairs saturate at 16 bits")
        except Unsupported:
            return
        judged_cases.append(case)
        assert judgement.right, judgement

    every()
    assert len(judged_cases) > 20


@pytest.mark.parametrize("name", sorted(LACKING))
def test_what_has_no_kernel_is_refused(name: str) -> None:
    @settings(max_examples=5, deadline=None, database=None, derandomize=True)
    @given(case=cases(OPERATORS[name], "float32"))
    def every(case: Case) -> None:
        with pytest.raises(Unsupported):
            judged(case)

    every()


@pytest.mark.parametrize("reason", FAULTS)
def test_a_fault_is_no_lack(reason: str) -> None:
    """Each is wrong, or raises what is not Unsupported; right means that it has been mended."""
    try:
        judgement = judged(FAULTS[reason])
    except Unsupported as lack:
        pytest.fail(f"a fault passes for a lack: {lack}")
    except (Fail, ValueError):  # a shape that is wrong cannot be compared
        return
    if judgement.right:
        pytest.skip("this version has it right")
    assert judgement.ratio > 1


@pytest.mark.parametrize(
    "case",
    [
        made("Conv", tensor(2, 3, 7, dtype="float64"), tensor(4, 3, 2, dtype="float64")),
        made("Relu", tensor(3, dtype="bfloat16")),
        made(
            "RNN",
            *(tensor(*s) for s in ((2, 4, 5), (1, 3, 5), (1, 3, 3))),
            layout=1,
            hidden_size=3,
        ),
        made("Attention", *(tensor(2, 2, 3, 4) for _ in range(3)), left_window_size=1),
        made("Conv", tensor(2, 3, 7), tensor(4, 3, 2), auto_pad="SAME_UPPER", dilations=(2,)),
    ],
    ids=["float64", "bfloat16", "layout", "window", "dilations"],
)
def test_a_lack_is_unsupported(case: Case) -> None:
    with pytest.raises(Unsupported):
        judged(case)


def test_a_model_that_onnx_refuses_is_not_the_runtime_s_fault() -> None:
    """As the model `simple/gradient_of_add` of the onnx package is."""
    node = onnx.helper.make_node("Add", ["x", "x"], ["y"])
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph([node], "untyped", [x], [onnx.ValueInfoProto(name="y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    with pytest.raises(Unsupported, match=r"onnx\.checker refuses the model: .*'type'"):
        OnnxRuntime().prepare(model.SerializeToString())


def test_invalid_arguments_raise_what_the_runtime_raises() -> None:
    view = OperatorView("MatMul", {})
    with pytest.raises(Exception, match="Incompatible dimensions"):
        BACKEND.rows["MatMul"].call(view, np.ones((2, 3), "f"), np.ones((2, 3), "f"))


def test_models_are_prepared_once_for_each_shape_and_attribute() -> None:
    backend = OnnxRuntime()
    softmax = backend.rows["Softmax"].call
    first, last = (OperatorView("Softmax", {"axis": axis}) for axis in (0, 1))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for _ in range(2):
        np.testing.assert_allclose(softmax(first, x)[0].sum(0), 1, rtol=2**-20)
        np.testing.assert_allclose(softmax(last, x)[0].sum(1), 1, rtol=2**-20)
        np.testing.assert_allclose(softmax(last, x.T)[0].sum(1), 1, rtol=2**-20)
    assert len(backend._prepared) == 3
    backend.reset()
    assert len(backend._prepared) == 0


def test_of_many_models_the_latest_stay_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("d5test.backends.onnx.KEPT", 3)
    backend = OnnxRuntime()
    relu, view = backend.rows["Relu"].call, OperatorView("Relu", {})
    for n in range(1, 6):
        assert relu(view, np.ones(n, np.float32))[0].shape == (n,)
    assert [kinds[0][1] for _, _, kinds in backend._prepared] == [(3,), (4,), (5,)]


def test_there_are_no_gradients() -> None:
    assert all(row.gradient for row in BACKEND.rows.values())
    with pytest.raises(Unsupported, match="no gradients"):
        BACKEND.vjp(lambda x: x, [], [], [])


def test_onnx_s_own_reference_is_a_backend_in_one_class() -> None:
    backend = Reference()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = backend.rows["Transpose"].call(OperatorView("Transpose", {"perm": (1, 0)}), x)
    np.testing.assert_array_equal(y, x.T)
    assert backend.opset == onnx.defs.onnx_opset_version()


def test_an_operator_set_that_is_given_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime may take a model of a newer one, and compute it by the rules of an older one."""
    monkeypatch.setattr(Reference, "opset", 18)
    backend = Reference()
    assert backend.opset == 18
    assert "RMSNormalization" not in backend.rows
    seen = []
    monkeypatch.setattr(Prepare, "prepare", lambda model, _: seen.append(model) or model)
    with pytest.raises(AttributeError):
        backend.rows["Relu"].call(OperatorView("Relu", {}), np.ones((2, 3), np.float32))
    assert [entry.version for entry in seen[0].opset_import] == [18]


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        ("Unsupported padding mode: [wrap]", True),
        ("Exception from pad.cpp:32:\nUnsupported padding mode: [wrap]\n\nSummary: Pad", True),
        ("Exception from pad.cpp:32: is this an Unsupported mode?", False),
    ],
)
def test_a_line_that_begins_with_unsupported_is_a_refusal(
    said: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError(said)

    backend, x = Reference(), np.ones((2, 3), np.float32)
    raised = Unsupported if refused else RuntimeError
    with pytest.raises(raised, match="Unsupported"):
        backend._run(SimpleNamespace(run=fail), [0], x)
    monkeypatch.setattr(Prepare, "prepare", fail)
    with pytest.raises(raised, match="Unsupported"):
        backend.rows["Relu"].call(OperatorView("Relu", {}), x)


class Prepare:
    """ONNX's reference evaluator behind the interface of `onnx.backend`."""

    @staticmethod
    def prepare(model: Any, _device: str) -> Any:
        evaluator = ReferenceEvaluator(model)
        names = evaluator.input_names
        return SimpleNamespace(
            run=lambda inputs: evaluator.run(None, dict(zip(names, inputs, strict=True)))
        )


class Reference(OnnxBackend):
    framework = "onnx"
    implementation = f"{__name__}:Prepare"
