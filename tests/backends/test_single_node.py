"""Models of one operator: ONNX has nothing to say against them, and every output is there."""

from typing import Any

import onnx
import pytest
from onnx.checker import check_model

from d5test.backends.onnx import APART, attributes_of, build_model
from d5test.case import Case, Tensor, is_float
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import forward_bounds
from d5test.numerics.judgement import judge
from d5test.problems.corpus import corpus
from d5test.reference.operators import OPERATORS
from d5test.worker.bound import OperatorView

OPSET = onnx.defs.onnx_opset_version()


def model(case: Case) -> onnx.ModelProto:
    name = case.op.name
    return build_model(name, attributes_of(name, case.op, OPSET), case.arrays(), OPSET)[0]


def attention(*more: Tensor | None, **attributes: Any) -> Case:
    q, k, v = Tensor((2, 4, 3, 6)), Tensor((2, 2, 5, 6)), Tensor((2, 2, 5, 7))
    return Case(OPERATORS["Attention"](**attributes), (q, k, v, *more))


LENGTHS = Tensor((2,), "int64", data=(2, 5))
PADDED = attention(Tensor((3, 5)), None, None, LENGTHS, qk_matmul_output_mode=1)


OF_SCALES = ("CausalConvWithState", "DequantizeLinear", "QLinearMatMul", "QuantizeLinear")
"""Operators that ONNX has no float64 for."""
SINGLE = ("DynamicQuantizeLinear", "NonMaxSuppression", "QLinearConv")
"""Operators that it has float32 for, alone."""


def test_a_strict_runtime_has_nothing_against_any_case() -> None:
    every = [p.case for p in corpus().problems if p.case.op.domain == ""]
    every = [case for case in every if case.op.name != "Dropout"]  # no runtime is asked for it
    assert len(every) > 800
    left_out = set()
    for case in every:
        floating = any(t is not None and is_float(t.dtype) for t in case.inputs)
        if not floating or case.dtype in allowed(case.op.name):
            check_model(model(case), full_check=True)
        else:
            left_out.add((case.op.name, case.dtype))
    assert left_out == {
        ("Shrink", "bfloat16"),
        ("LinearAttention", "float64"),
        ("RotaryEmbedding", "float64"),
        *((name, "float64") for name in OF_SCALES),
        *((name, dtype) for name in SINGLE for dtype in ("float64", "float16", "bfloat16")),
        *(("MeanVarianceNormalization", dtype) for dtype in ("float64", "float16", "bfloat16")),
    }


def allowed(operator: str) -> set[str]:
    """The floating-point dtypes that ONNX has an operator for: Shrink has no bfloat16."""
    schema = onnx.defs.get_schema(operator, OPSET)
    if operator == "MeanVarianceNormalization":  # whose function body has constants of float32
        return {"float32"}
    named = {"float": "float32", "double": "float64"}
    types = {t.removeprefix("tensor(").removesuffix(")") for x in schema.inputs for t in x.types}
    return {named.get(t, t) for t in types}


def test_every_output_is_still_the_runtime_s() -> None:
    pytest.importorskip("onnxruntime")
    from d5test.backends.onnxruntime import OnnxRuntime

    view = OperatorView("Attention", {**PADDED.op.attributes})
    got = OnnxRuntime().rows["Attention"].call(view, *PADDED.arrays())
    (arithmetic,) = classes("float32")
    bounds = forward_bounds(PADDED.op, PADDED.arrays(), arithmetic)
    assert [y.shape for y in got] == [b.value.shape for b in bounds if b is not None]
    for k, y in enumerate(got):
        judgement = judge(bounds[k : k + 1], [y])
        assert judgement.right
        assert judgement.share == 1
        assert not judge(bounds[k : k + 1], [1.001 * y]).right


def test_what_is_apart_is_what_the_operators_say() -> None:
    said = {name: op.apart for name, op in OPERATORS.items() if op.apart}
    assert said == APART
    for name, rule in APART.items():
        schema = onnx.defs.get_schema(name)
        kinds = onnx.defs.OpSchema.FormalParameterOption
        assert all(schema.inputs[i].option == kinds.Optional for i in rule)
        assert all(schema.outputs[k].option == kinds.Optional for ks in rule.values() for k in ks)


def test_outputs_that_onnx_forbids_beside_an_input_are_named_by_a_node_without_it() -> None:
    made = model(PADDED)
    first, second = made.graph.node
    assert list(first.input) == ["x0", "x1", "x2", "x3", "", "", "x6"]
    assert list(first.output) == ["y0", "", "", "y3"]
    assert list(second.input) == ["x0", "x1", "x2", "x3"]
    assert list(second.output)[1:] == ["y1", "y2"]
    assert first.attribute == second.attribute
    assert [info.name for info in made.graph.output] == ["y0", "y1", "y2", "y3"]
    ranks = [len(info.type.tensor_type.shape.dim) for info in made.graph.output]
    assert ranks == [4, 4, 4, 4]


@pytest.mark.parametrize(
    "case",
    [
        attention(),
        attention(None, Tensor((2, 2, 3, 6)), Tensor((2, 2, 3, 7))),
        Case(OPERATORS["Split"](num_outputs=3), (Tensor((7, 2)),)),
        Case(OPERATORS["Relu"](), (Tensor((2, 3)),)),
    ],
)
def test_anything_else_is_one_node_with_all_outputs(case: Case) -> None:
    made = model(case)
    (node,) = made.graph.node
    count = len(case.op(*case.arrays()))
    assert list(node.output) == [info.name for info in made.graph.output]
    assert list(node.output) == [f"y{k}" for k in range(count)]
