"""The rows of the jax backend, each within the error bars of its reference, in each dtype."""

import warnings
from functools import partial
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import d5test.reference.operators as reference
from d5test.backends.base import Row, Unsupported
from d5test.backends.jax import Jax, JaxCompiled
from d5test.case import Case, Operator, Tensor
from d5test.checks import CHECKS
from d5test.numerics.arithmetic import classes
from d5test.numerics.bounds import double, forward_bounds, gradient_bounds
from d5test.numerics.judgement import Judgement, tightest
from d5test.reference.formulas import computed
from tests.faults.score import Local
from tests.nightly import at_night, thinned

EAGER, COMPILED = Jax(), JaxCompiled()
BACKENDS = {"eager": EAGER, "compiled": COMPILED}


def ints(*values: int) -> Tensor:
    return Tensor((len(values),), "int64", data=values)


def below(limit: int, *shape: int) -> Tensor:
    return Tensor(shape, "int64", ("below", limit))


def mask(*shape: int) -> Tensor:
    return Tensor(shape, "bool", ("mask",))


def bits(*shape: int) -> Tensor:
    return Tensor(shape, "uint8", ("bits",))


def some(*shape: int) -> Tensor:
    return Tensor(shape)


def positive(*shape: int) -> Tensor:
    return Tensor(shape, values=("positive",))


def wide(*shape: int) -> Tensor:
    return Tensor(shape, values=("uniform", -4, 4))


def scalar(value: float) -> Tensor:
    return Tensor((), data=(value,))


IMAGE, PARAMETERS = some(2, 4, 7, 5), (positive(4), some(4))
HEADS = (some(2, 4, 5, 8), some(2, 2, 5, 8), some(2, 2, 5, 8))
SEVEN_FIRST = tuple(Tensor((), "int64", data=(n,)) for n in (7, 0))
PAST = (some(2, 2, 3, 8), some(2, 2, 3, 8))
ROWS: list[tuple[str, tuple[Tensor | None, ...], dict[str, Any]]] = [
    *((name, (some(3, 5),), {}) for name in "Relu LeakyRelu Sigmoid Tanh Exp Erf".split()),
    *((name, (some(3, 5),), {}) for name in "Gelu Softplus Abs Neg".split()),
    *((name, (wide(3, 5),), {}) for name in "Softsign Floor Ceil Round Sign Identity".split()),
    ("Det", (some(2, 3, 3),), {}),
    ("SwiGLU", (wide(3, 5), some(3, 5)), {"alpha": 0.25}),
    *(("Mod", (wide(3, 5), positive(5)), {"fmod": fmod}) for fmod in (0, 1)),
    *(("Swish", (some(3, 5),), {"alpha": alpha}) for alpha in (1.0, 0.25)),
    *((name, (some(3, 5),), {}) for name in "Sin Cos Tan Atan Sinh Cosh Asinh".split()),
    *((name, (Tensor((3, 5), values=("uniform", *ends)),), {}) for name, ends in
      (("Asin", (-0.9, 0.9)), ("Acos", (-0.9, 0.9)), ("Atanh", (-0.9, 0.9)), ("Acosh", (1.1, 4)))),
    ("Gelu", (some(3, 5),), {"approximate": "tanh"}),
    *((name, (positive(3, 5),), {}) for name in ("Log", "Sqrt", "Reciprocal")),
    *((name, (wide(3, 5),), {}) for name in "Elu HardSigmoid HardSwish Mish Selu".split()),
    *((name, (some(3, 5),), {"alpha": 0.25}) for name in "Elu Celu ThresholdedRelu".split()),
    ("Selu", (some(3, 5),), {"alpha": 0.25, "gamma": 2.0}),
    ("HardSigmoid", (wide(3, 5),), {"alpha": 0.1666666716337204}),
    ("PRelu", (some(2, 3, 5), some(3, 1)), {}),
    ("Clip", (some(3, 5), scalar(-0.5), scalar(0.75)), {}),
    ("Clip", (some(3, 5), scalar(0.75), scalar(-0.5)), {}),
    ("Clip", (some(3, 5), None, scalar(0.75)), {}),
    ("InstanceNormalization", (IMAGE, *PARAMETERS), {}),
    ("Tile", (some(2, 3), ints(3, 2)), {}),
    *((name, (some(3, 1), some(2, 1, 5)), {}) for name in ("Add", "Sub", "Mul", "Max", "Min")),
    *((name, (positive(3, 5), positive(5)), {}) for name in ("Div", "Pow")),
    *((name, (some(3, 5), some(5), some(2, 1, 1)), {}) for name in ("Max", "Min")),
    ("MatMul", (some(2, 3, 5), some(5, 4)), {}),
    ("Gemm", (some(5, 3), some(4, 5), some(4)), {"transA": 1, "transB": 1, "alpha": 0.5}),
    ("Einsum", (some(2, 3, 5), some(5, 3)), {"equation": "...ij,ji->...i"}),
    ("Conv", (IMAGE, some(6, 2, 3, 2), some(6)), {"group": 2, "pads": (1, 0, 2, 1)}),
    ("Conv", (IMAGE, some(3, 4, 2, 2)), {"strides": (2, 3), "auto_pad": "SAME_LOWER"}),
    ("Conv", (some(2, 3, 9), some(4, 3, 3)), {"dilations": (2,)}),
    (
        "ConvTranspose",
        (IMAGE, some(4, 3, 3, 2), some(6)),
        {"group": 2, "pads": (1, 0, 2, 1), "strides": (2, 3), "output_padding": (1, 2)},
    ),
    ("ConvTranspose", (IMAGE, some(4, 3, 3, 2)), {"output_shape": (9, 8), "dilations": (1, 2)}),
    ("MaxPool", (IMAGE,), {"kernel_shape": (3, 2), "strides": (2, 2), "ceil_mode": 1}),
    ("MaxPool", (IMAGE,), {"kernel_shape": (3, 2), "auto_pad": "SAME_UPPER"}),
    ("AveragePool", (IMAGE,), {"kernel_shape": (3, 2), "strides": (2, 2), "ceil_mode": 1}),
    (
        "AveragePool",
        (IMAGE,),
        {"kernel_shape": (3, 2), "strides": (3, 2), "ceil_mode": 1, "pads": (1, 1, 1, 0),
         "count_include_pad": 1, "dilations": (1, 2)},
    ),
    *(("Resize", (IMAGE, None, None, ints(9, 8)), {"axes": (2, 3), **how}) for how in (
        {"mode": "linear"}, {"nearest_mode": "round_prefer_ceil"}, {"mode": "cubic"},
        {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1})),
    *((f"Global{name}Pool", (IMAGE,), {}) for name in ("Average", "Lp", "Max")),
    ("CausalConvWithState", (some(2, 3, 5), some(3, 1, 4), some(3), some(2, 3, 3)),
     {"activation": "silu"}),
    ("LpPool", (IMAGE,), {"kernel_shape": (3, 2), "p": 3, "pads": (1, 0, 1, 1)}),
    ("MeanVarianceNormalization", (IMAGE,), {}),
    *(("LpNormalization", (some(3, 5),), {"p": p}) for p in (1, 2)),
    ("BatchNormalization", (IMAGE, *PARAMETERS, some(4), positive(4)), {}),
    ("BatchNormalization", (IMAGE, *PARAMETERS, some(4), positive(4)), {"training_mode": 1}),
    ("LayerNormalization", (IMAGE, positive(7, 5), some(7, 5)), {"axis": 2}),
    ("GroupNormalization", (IMAGE, *PARAMETERS), {"num_groups": 2}),
    ("RMSNormalization", (IMAGE, positive(7, 5)), {"axis": 2}),
    ("Softmax", (some(3, 7, 2),), {"axis": 1}),
    ("LogSoftmax", (some(3, 7, 2),), {"axis": 1}),
    ("NegativeLogLikelihoodLoss", (some(3, 4, 5), below(4, 3, 5), positive(4)), {}),
    ("NegativeLogLikelihoodLoss", (some(3, 4), below(4, 3)), {"reduction": "none"}),
    ("SoftmaxCrossEntropyLoss", (some(9, 4), below(4, 9)), {"ignore_index": 1}),
    ("SoftmaxCrossEntropyLoss", (some(9, 4), below(4, 9)), {"reduction": "sum"}),
    *(
        (name, (some(3, 4, 5), ints(0, -1)), {"keepdims": keepdims})
        for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp")
        for keepdims in (0, 1)
    ),
    *(
        (name, (positive(3, 4, 5), ints(0, -1)), {"keepdims": keepdims})
        for name in ("ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
                     "ReduceSumSquare")
        for keepdims in (0, 1)
    ),
    ("ReduceSum", (some(3, 4),), {"noop_with_empty_axes": 1}),
    ("ReduceMean", (some(3, 4),), {}),
    ("Reshape", (some(2, 3, 4), ints(0, -1)), {}),
    ("Flatten", (some(2, 3, 4),), {"axis": 2}),
    ("Squeeze", (some(2, 1, 3, 1), ints(1)), {}),
    ("Squeeze", (some(2, 1, 3, 1),), {}),
    ("Unsqueeze", (some(2, 3), ints(0, -1)), {}),
    ("Sum", (some(2, 3, 4), some(4), some(3, 1)), {}),
    ("Mean", (some(2, 3, 4), some(4), some(3, 1)), {}),
    ("Shrink", (some(3, 5),), {"bias": 0.25, "lambd": 0.75}),
    ("LRN", (some(2, 5, 4, 3),), {"size": 3, "alpha": 0.5}),
    ("LRN", (some(2, 5, 4),), {"size": 2, "alpha": 0.5, "bias": 2.0}),
    ("CenterCropPad", (some(5, 4), ints(2, 7)), {"axes": (-1, 0)}),
    ("Trilu", (some(2, 3, 5), Tensor((), "int64", data=(-1,))), {"upper": 0}),
    ("Trilu", (some(4, 3),), {}),
    ("Transpose", (some(2, 3, 4),), {"perm": (2, 0, 1)}),
    ("Transpose", (some(2, 3, 4),), {}),
    ("Concat", (some(2, 3), some(2, 4)), {"axis": 1}),
    ("Split", (some(2, 7),), {"axis": 1, "num_outputs": 3}),
    ("Split", (some(2, 7), ints(2, 5)), {"axis": -1}),
    ("Slice", (some(5, 7), ints(-1, 1), ints(-99, 99), ints(1, 0), ints(-2, 3)), {}),
    ("Gather", (some(5, 4, 3), below(4, 2, 2)), {"axis": 1}),
    ("GatherElements", (some(5, 4), below(4, 3, 6)), {"axis": -1}),
    ("GatherND", (some(5, 4, 3), Tensor((3, 2), "int64", ("places", 5, 4))), {}),
    ("GatherND", (some(2, 4, 3), below(3, 2, 5, 1)), {"batch_dims": 1}),
    *(("ScatterElements", (some(5, 4), Tensor((3, 3), "int64", ("shuffled", 4, 1)), some(3, 3)),
       {"axis": 1, "reduction": how}) for how in ("none", "add", "max")),
    *(("ScatterND", (some(5, 4), Tensor((2, 1), "int64", ("distinct", 5)), some(2, 4)),
       {"reduction": how}) for how in ("none", "add", "max")),
    *((name, (some(3, 1), some(2, 1, 5)), {})
      for name in "Equal Greater GreaterOrEqual Less LessOrEqual".split()),
    *((name, (mask(3, 1), mask(2, 1, 5)), {}) for name in ("And", "Or", "Xor")),
    *((f"Bitwise{name}", (bits(3, 1), bits(2, 1, 5)), {}) for name in ("And", "Or", "Xor")),
    *(("BitShift", (bits(3, 1), Tensor((5,), "uint8", ("below", 8))), {"direction": direction})
      for direction in ("LEFT", "RIGHT")),
    ("Not", (mask(3, 5),), {}),
    ("BitwiseNot", (bits(3, 5),), {}),
    ("IsNaN", (Tensor((3, 5), values=("unbounded",)),), {}),
    *(("IsInf", (Tensor((3, 5), values=("unbounded",)),), {"detect_negative": n}) for n in (0, 1)),
    ("EyeLike", (some(3, 5),), {"k": 1}),
    ("ConstantOfShape", (ints(3, 5),), {}),
    ("Range", tuple(Tensor((), "int64", data=(n,)) for n in (9, -4, -3)), {}),
    ("NonZero", (mask(3, 5),), {}),
    *(("Unique", (below(2, 5, 3),), {"axis": axis}) for axis in (None, 0)),
    ("TopK", (some(3, 7), ints(4)), {}),
    *((name, (some(3, 7),), {"axis": 1, "keepdims": 0}) for name in ("ArgMax", "ArgMin")),
    ("TensorScatter", (some(2, 5, 3), some(2, 2, 3), ints(1, 3)), {}),
    ("TensorScatter", (some(2, 5, 3), some(2, 4, 3), ints(4, 7)), {"mode": "circular"}),
    ("Hardmax", (some(3, 7, 2),), {"axis": 1}),
    ("Compress", (some(3, 7), mask(6)), {"axis": -1}),
    ("Compress", (some(3, 7), mask(21)), {}),
    ("OneHot", (below(6, 2, 3), ints(5), some(2)), {"axis": 1}),
    ("Pad", (some(5, 7), ints(1, -1, 0, 2), some()), {}),
    ("Pad", (some(5, 7), ints(2, 1), None, ints(-1)), {"mode": "reflect"}),
    ("Where", (mask(3, 1), some(3, 5), some(5)), {}),
    ("CumSum", (some(3, 5), Tensor((), "int64", data=(1,))), {"exclusive": 1}),
    ("CumProd", (some(3, 5), Tensor((), "int64", data=(1,))), {"exclusive": 1}),
    ("CumProd", (some(3, 5), Tensor((), "int64", data=(-2,))), {"reverse": 1}),
    ("Expand", (some(3, 1), ints(2, 1, 4)), {}),
    ("Dropout", (some(3, 5), None, mask(3, 5)), {}),
    ("Dropout", (some(3, 5),), {}),
    ("Attention", HEADS, {"is_causal": 1}),
    *(("RotaryEmbedding", (some(2, 3, 5, 8), *(some(2, 5, 4),) * 2), {"interleaved": paired})
      for paired in (0, 1)),
    ("RotaryEmbedding", (some(2, 5, 24), some(6, 3), some(6, 3), below(6, 2, 5)),
     {"num_heads": 3, "rotary_embedding_dim": 6}),
    ("Attention", (*HEADS, mask(5, 8), *PAST), {"is_causal": 1}),
    ("Attention", (*HEADS, some(2, 1, 5, 5)), {"scale": 0.5}),
    ("Attention", (some(2, 3, 8), some(2, 5, 4), some(2, 5, 4)),
     {"q_num_heads": 4, "kv_num_heads": 2}),
    *(
        (name, (some(4, 3, 2), some(ways, gates * 5, 2), some(ways, gates * 5, 5),
                some(ways, gates * 10), Tensor((3,), "int32", data=(4, 2, 3)),
                *(some(ways, 3, 5) for _ in range(states))), {"hidden_size": 5, **given})
        for name, gates, states in (("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2))
        for ways, given in ((1, {}), (1, {"direction": "reverse"}),
                            (2, {"direction": "bidirectional"}))
    ),
    ("GRU", (some(4, 3, 2), some(1, 15, 2), some(1, 15, 5)),
     {"hidden_size": 5, "linear_before_reset": 1}),
    ("LSTM", (some(4, 3, 2), some(1, 20, 2), some(1, 20, 5), None, None, None, None, some(1, 15)),
     {"hidden_size": 5}),
    *(("Cast", (some(3, 5),), {"to": to}) for to in (6, 9, 10, 16)),
    *(("DFT", (some(3, 5, 1), *given), {"onesided": 1}) for given in ((), SEVEN_FIRST)),
    *(("DFT", (some(3, 5, 2), *given), {"inverse": 1, "onesided": onesided})
      for given in ((), SEVEN_FIRST) for onesided in (0, 1)),
    *((name, (Tensor((), "int64", data=(6,)),), {"periodic": 0, "output_datatype": 11})
      for name in ("BlackmanWindow", "HammingWindow", "HannWindow")),
    ("Cast", (some(3, 5),), {"to": 17, "saturate": 0}),
    ("CastLike", (some(3, 5), Tensor((2,), "bfloat16")), {}),
    ("BitCast", (Tensor((3, 5), "uint32", ("bits",)),), {"to": 6}),
]  # fmt: skip
KNOWN = [row for row in ROWS if row[0] in reference.OPERATORS]


def in_dtype(tensor: Tensor | None, dtype: str) -> Tensor | None:
    if tensor is None or tensor.dtype != "float32":
        return tensor
    return Tensor(tensor.shape, dtype, tensor.values)


def put(array: Any) -> Any:
    return None if array is None else EAGER.put(np.asarray(array), array.dtype.name)


def judged(case: Case, backend: Jax, *, flushes: bool = True) -> tuple[Row, Judgement, Judgement]:
    """Outputs and gradients of a case against the bars of the reference."""
    row, arrays = Jax.rows[case.op.name], case.arrays()
    op = computed(case.op, row.contract, np.inf)
    dys = case.upstream(case.op(*(arrays if case.op.typed else double(arrays))))
    n = len(dys) if row.outputs is None else row.outputs
    dys = dys[:n]
    tensors = [put(a) for a in arrays]
    function = backend.compile(partial(row.call, case.op))
    ys = function(*tensors)
    ys = ys if isinstance(ys, tuple) else (ys,)
    arithmetics = classes(case.dtype, flushes=flushes, ulps=Jax.ulps)
    outputs, _ = tightest(
        arithmetics, lambda a: forward_bounds(op, arrays, a), [np.asarray(y) for y in ys[:n]]
    )
    if row.gradient or not case.op.differentiable:
        return row, outputs, Judgement()
    _, dxs = backend.vjp(function, tensors, [put(dy) for dy in dys], case.wanted)
    spread: list[Any] = [None] * len(arrays)
    for i, dx in zip(case.wanted, dxs, strict=True):
        spread[i] = np.asarray(dx)
    gradients, _ = tightest(arithmetics, lambda a: gradient_bounds(op, arrays, dys, a), spread)
    return row, outputs, gradients


@pytest.mark.parametrize(
    "mode,dtype",
    [at_night(("eager", "float64")), ("compiled", "float32")],
)
@pytest.mark.parametrize(
    "name,inputs,attributes",
    thinned(KNOWN, 2),
    ids=[f"{row[0]}-{i}" for i, row in enumerate(KNOWN)],
)
def test_outputs_and_gradients_lie_within_the_bars(
    name: str,
    inputs: tuple[Tensor | None, ...],
    attributes: dict[str, Any],
    mode: str,
    dtype: str,
) -> None:
    if dtype not in Jax.rows[name].dtypes:
        pytest.skip(f"jax declares no {dtype} for {name}")
    if (name, dtype) == ("Attention", "float64"):
        pytest.skip("computes in float32: pinned in suites/known/jax.toml")
    op: Operator = reference.OPERATORS[name](**attributes)
    case = Case(op, tuple(in_dtype(tensor, dtype) for tensor in inputs), seed=5)
    row, outputs, gradients = judged(case, BACKENDS[mode])
    assert outputs.right, outputs
    assert gradients.right, gradients
    assert outputs.arithmetic <= row.arithmetic
    assert gradients.arithmetic <= row.arithmetic


def view(name: str, **given: Any) -> Any:
    return reference.OPERATORS[name](**given)


def test_every_operator_of_the_reference_has_a_case_here() -> None:
    valued = {name for name, cls in reference.OPERATORS.items() if not cls.random}
    missing = valued & set(Jax.rows) - {row[0] for row in KNOWN}
    assert not missing, f"add a case of {', '.join(sorted(missing))} to ROWS"


def test_a_compiled_row_compiles_once_for_each_value_that_decides_a_shape() -> None:
    reshape = COMPILED.compile(partial(Jax.rows["Reshape"].call, view("Reshape")))
    x = EAGER.put(np.arange(12.0), "float64")
    before = COMPILED.compilations()
    assert before is not None
    for k, sizes in enumerate(([3, 4], [3, 4], [2, 6], [3, 4])):
        y = reshape(x, EAGER.put(np.array(sizes), "int64"))
        assert y.shape == tuple(sizes)
        assert COMPILED.compilations() == before + (1, 1, 2, 2)[k]


def test_labels_are_traced_and_compile_once() -> None:
    gather = COMPILED.compile(partial(Jax.rows["Gather"].call, view("Gather")))
    x = EAGER.put(np.arange(4.0), "float64")
    before = COMPILED.compilations()
    assert before is not None
    for i in (2, 0, -1):
        assert float(gather(x, EAGER.put(np.array([i]), "int64"))[0]) == np.arange(4.0)[i]
    assert COMPILED.compilations() == before + 1


def test_a_repeated_gradient_does_not_compile_again() -> None:
    function = COMPILED.compile(partial(Jax.rows["Mul"].call, view("Mul")))
    inputs = [EAGER.put(np.array([v]), "float64") for v in (2.0, 3.0)]
    dy = EAGER.put(np.array([5.0]), "float64")
    before = COMPILED.compilations()
    assert before is not None

    def folded(*given: Any) -> Any:
        return function(*given)

    for _ in range(3):
        _, (dx,) = COMPILED.vjp(folded, inputs, [dy], [0])
        assert float(dx[0]) == 15
    assert COMPILED.compilations() == before + 1


def test_what_jax_cannot_do_says_so() -> None:
    op = view("MaxPool", kernel_shape=(2,), dilations=(2,))
    x = EAGER.put(np.arange(10.0).reshape(1, 1, 10), "float64")
    dy = EAGER.put(np.ones((1, 1, 8)), "float64")
    with pytest.raises(Unsupported, match="window dilation"):
        EAGER.vjp(partial(Jax.rows["MaxPool"].call, op), [x], [dy], [0])
    with pytest.raises(Unsupported, match="layout 'reversed'"):
        EAGER.put(np.ones(3), "float64", "reversed")
    with pytest.raises(Unsupported, match="jax has no device 'cpu:7' here, only cpu"):
        Jax("cpu:7")


def test_a_function_with_a_backward_of_its_own_has_no_forward_mode() -> None:
    own = jax.custom_vjp(jax.numpy.sin)
    own.defvjp(lambda x: (jax.numpy.sin(x), x), lambda x, dy: (dy * jax.numpy.cos(x),))
    x = EAGER.put(np.ones(3, np.float32), "float32")
    with pytest.raises(Unsupported, match="jax: can't apply forward-mode"):
        EAGER.jvp(own, [x], [x])
    _, (dx,) = EAGER.vjp(own, [x], [x], [0])
    np.testing.assert_allclose(np.asarray(dx), np.cos(1.0), rtol=1e-6)


def test_values_travel_bit_by_bit_and_copied() -> None:
    bits = np.arange(0x3F80, 0x3F90, dtype=np.uint16).reshape(2, 8)
    tensor = EAGER.put(bits, "bfloat16")
    assert tensor.dtype.name == "bfloat16"
    got, dtype = EAGER.get(tensor)
    assert dtype == "bfloat16"
    np.testing.assert_array_equal(got, bits)
    got[...] = 0
    np.testing.assert_array_equal(EAGER.get(tensor)[0], bits)


def test_the_derivative_of_log_softmax_sums_as_it_stores() -> None:
    """As its row says: these upstream gradients nearly cancel, and float16 keeps 2.5 digits."""
    case = Case(reference.LogSoftmax(), (Tensor((2, 4, 3), dtype="float16"),), seed=30)
    row, forward, gradient = judged(case, Jax(), flushes=False)
    assert row.arithmetic == "S"
    assert forward.right
    assert gradient.right
    assert (forward.arithmetic, gradient.arithmetic) == ("P", "S")


def test_a_query_that_sees_no_key_gets_zeros() -> None:
    q = EAGER.put(np.ones((1, 1, 2, 3)), "float32")
    nothing = EAGER.put(np.array([[True, False], [False, False]]), "bool")
    y, *_ = Jax.rows["Attention"].call(view("Attention"), q, q, q, nothing)
    np.testing.assert_array_equal(np.asarray(y)[0, 0], [[1, 1, 1], [0, 0, 0]])


def test_an_infinite_weight_may_meet_a_state_that_vanishes() -> None:
    """A gate of 5e-42 is 0 here, and infinity times 0 is NaN: of the reference's, it is 1."""
    inputs = (Tensor((4, 3, 2), values=("heavy",)), Tensor((2, 16, 2)), Tensor((2, 16, 4)))
    op = reference.LSTM(direction="bidirectional", hidden_size=4)
    case = Case(op, (*inputs, None, None, Tensor((2, 3, 4)), None, None), seed=66)
    assert CHECKS["special"].run(Local("jax", Jax()), case).right


def test_importing_and_calling_it_prints_and_warns_nothing(capfd: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Jax().wait([jax.numpy.exp(EAGER.put(np.ones(3), "float32"))])
    assert capfd.readouterr() == ("", "")
