"""--sizes=large: what is wrong only beyond so many bytes or elements is found by repetition."""

from typing import Any

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.backends.numpy import Numpy
from d5test.case import Case, Tensor
from d5test.checks import (
    Fault,
    large,
    large_bytes,
    large_bytes_gradient,
    large_elements,
    large_elements_gradient,
)
from d5test.client.messages import Crashed, Raised
from d5test.reference.operators import OPERATORS
from d5test.reference.operators.linear import MatMul
from d5test.reference.operators.normalisation import BatchNormalization
from d5test.reference.operators.reductions import ReduceSum, Softmax
from d5test.reference.operators.windows import MaxPool
from tests.faults.score import Local
from tests.faults.wrong import Arrays, Honest, Wrong
from tests.plugin.conftest import Suite

SOFTMAX = Case(Softmax(), (Tensor((3, 5)),))


@pytest.fixture(autouse=True)
def _not_so_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "LARGE", 1 << 14)


class Beyond(Wrong):
    """Wrong in the last sample, or in its gradient, from so many elements on."""

    def __init__(self, least: int, *, gradient: bool = False, cut: bool = False) -> None:
        super().__init__()
        self.least, self.gradient, self.cut = least, gradient, cut

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        y, *others = honest(*inputs)
        if np.size(inputs[0]) > self.least and not self.gradient:
            y = y[:-1] if self.cut else y.copy()
            y[-1] = y[0]
        return (y, *others)

    def backward(self, gradients: Any, inputs: Arrays, grads: Arrays) -> Any:
        dx, *others = gradients
        if np.size(inputs[0]) > self.least and self.gradient:
            dx = dx.copy()
            dx[-1] = 0
        return (dx, *others)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "check", [large_bytes, large_bytes_gradient, large_elements, large_elements_gradient]
)
def test_an_honest_backend_is_right(check: Any, dtype: str) -> None:
    for op, shapes in ((Softmax(), ((3, 5),)), (MatMul(), ((2, 3), (3, 5)))):
        case = Case(op, tuple(Tensor(shape, dtype) for shape in shapes))
        judgement = check(Local("numpy", Numpy()), case)
        assert judgement.right
        assert judgement.ratio > 0


@pytest.mark.parametrize("gradient", [False, True])
def test_what_is_wrong_in_large_calls_alone_is_found(gradient: bool) -> None:
    wrong = Local("wrong", Beyond(1 << 13, gradient=gradient))
    checks = large_elements, large_elements_gradient
    which = "gradient" if gradient else "result"
    with pytest.raises(Fault, match=f"the {which} is wrong in some of 1093 repetitions") as raised:
        checks[gradient](wrong, SOFTMAX)
    said = raised.value.message
    assert "the inputs 1093 times along their axes 0" in said
    assert f"--operator=Softmax --check={checks[gradient].__name__} --dtype=float32" in said
    assert large_bytes(wrong, SOFTMAX).right  # a quarter of the elements
    assert large_bytes_gradient(wrong, SOFTMAX).right


class Wraps(Wrong):
    """An offset that has one bit too few: elements are read from the beginning again."""

    bits = 14

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        x, *others = inputs
        offsets = np.arange(x.size) % (1 << self.bits)
        return honest(x.reshape(-1)[offsets].reshape(x.shape), *others)


ALIKE = {"QuantizeLinear"}
"""Its numbers lie beside a jump: those of another place are the same integers."""


@pytest.mark.parametrize("name", sorted(OPERATORS.keys() - ALIKE))
def test_an_offset_that_overflows_reads_other_numbers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though all samples are alike."""
    wraps = Wraps()
    for case in large.large_cases(OPERATORS[name], "float32"):
        first = case.arrays()[0]
        assert first is not None
        wraps.bits = max(14, int(first.size).bit_length())  # the case alone is read as it is
        monkeypatch.setattr(large, "LARGE", 2 << wraps.bits)
        found = large.repeated(case, large.LARGE)
        assert found is not None
        x, axis = case.arrays()[0], found.along.inputs[0]
        if axis is None:
            continue  # what is large is another input
        assert x is not None
        many = np.tile(x, [found.times if a == axis else 1 for a in range(x.ndim)])
        if many.size <= 1 << wraps.bits:
            continue  # or the output
        with pytest.raises(Fault, match="some of"):
            large_elements(Local("wraps", wraps), case)


def test_what_is_lost_is_a_wrong_shape() -> None:
    with pytest.raises(Fault, match="a result has another shape or dtype") as raised:
        large_elements(Local("wrong", Beyond(1 << 13, cut=True)), SOFTMAX)
    assert raised.value.details["want"] == "[('float32', 3279, 5)]"


def test_what_is_wrong_in_small_calls_too_is_reported_there() -> None:
    with pytest.raises(Fault, match="the result is wrong") as raised:
        large_elements(Local("wrong", Beyond(1)), SOFTMAX)
    assert raised.value.check == "forward"


def test_wrong_gradients_of_small_calls_are_reported_there() -> None:
    with pytest.raises(Fault, match="the gradient is wrong") as raised:
        large_elements_gradient(Local("wrong", Beyond(1, gradient=True)), SOFTMAX)
    assert raised.value.check == "gradient"


class Widened(Wrong):
    """Another dtype, in large calls."""

    def forward(self, honest: Honest, *inputs: Any) -> Arrays:
        y, *others = honest(*inputs)
        return (y.astype(np.float64) if y.size > 1 << 13 else y, *others)


def test_another_dtype_is_found() -> None:
    with pytest.raises(Fault, match="another shape or dtype than the small call's"):
        large_elements(Local("wrong", Widened()), SOFTMAX)


def test_axes_are_those_along_which_the_reference_repeats() -> None:
    def along(case: Case) -> Any:
        found = large.repeated(case, 1000)
        return found and (found.along.inputs, found.along.outputs)

    axes = Tensor((1,), "int64", data=(0,))
    assert along(Case(ReduceSum(keepdims=0), (Tensor((3, 5)), axes))) == ((1, None), (0,))
    assert along(Case(ReduceSum(), (Tensor((3, 5)), None))) is None
    # means over repeated samples stay as they are: only other samples show the dependence
    statistics = BatchNormalization(training_mode=1)
    shapes = (3, 2, 5), (2,), (2,), (2,), (2,)
    assert along(Case(statistics, tuple(Tensor(shape) for shape in shapes))) is None
    # nor does a sample have a power of two of elements
    assert along(Case(Softmax(), (Tensor((4, 8)),))) is None
    assert along(Case(Softmax(), (Tensor((3, 8)),))) == ((0,), (0,))
    assert along(Case(Softmax(), (Tensor((3, 8), values=("onehot",)),))) is None
    # its indices count over all samples
    pool = Case(MaxPool(kernel_shape=(2,)), (Tensor((2, 3, 4)),))
    assert along(pool) == ((0,), (0, None))


def test_all_operators_but_a_few_have_samples() -> None:
    without = {name for name, op in OPERATORS.items() if not large.large_cases(op, "float32")}
    over_all_axes = {"CenterCropPad", "ReduceLogSumExp", "ReduceMax", "ReduceSumSquare"}
    of_all = {"MaxUnpool", "NonMaxSuppression", "NonZero", "Unique"}  # indices count over all
    no_samples = {"ConstantOfShape", "EyeLike", "Range", "Shape", "Size", "MelWeightMatrix"}
    no_samples |= {"BlackmanWindow", "HammingWindow", "HannWindow"}
    no_samples |= {name for name, op in OPERATORS.items() if op.random}
    no_samples |= {"AdagradUpdate", "AdamUpdate", "MomentumUpdate"}
    counted = {"AffineGrid", "ScatterElements", "ScatterND"}  # another input says how many
    assert without == over_all_axes | counted | of_all | no_samples


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (Crashed("SIGKILL"), Unsupported),
        (Crashed("SIGSEGV"), Fault),
        (Raised("RuntimeError", "can't allocate memory: 8589934592 bytes"), Unsupported),
        (Raised("RuntimeError", "can't allocate 18446744073709551600 bytes"), Fault),
        (Raised("MemoryError", "Unable to allocate 8.00 GiB for an array"), Unsupported),
        (Raised("MemoryError", "Unable to allocate 16.0 EiB for an array"), Fault),
        (Raised("RuntimeError", "no kernel for this memory format"), Fault),
        (Raised("IndexError", "index out of range"), Fault),
    ],
    ids=str,
)
def test_too_little_memory_is_no_fault_and_everything_else_is(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, outcome: type[Exception]
) -> None:
    def repeat(*_: Any, **__: Any) -> Any:
        raise failure

    client = Local("numpy", Numpy())
    monkeypatch.setattr(client, "repeat", repeat)
    with pytest.raises(outcome, match="Softmax"):
        large_elements(client, SOFTMAX)


def test_what_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "LARGE", 1 << 40)
    with pytest.raises(Unsupported, match=r"Softmax repeated \d+ times needs \d+\.\d GiB of mem"):
        large_elements(Local("numpy", Numpy()), SOFTMAX)


def test_only_what_is_large_is_asked(suite: Suite) -> None:
    ran = suite("", "--backend=numpy", "--sizes=large", "--collect-only", "-q", "--operator=Relu")
    assert ran.rc == 0
    assert "test_large_bytes[numpy-Relu-bfloat16]" in ran.text
    assert "test_forward" not in ran.text
    ran = suite("", "--backend=numpy", "--check=large_bytes")
    assert ran.rc == 4
    assert "--check=large_bytes takes --sizes=large" in ran.text
    ran = suite("", "--backend=numpy", "--sizes=large", "-n2")
    assert ran.rc == 4
    assert "--sizes=large fills the memory with each call: leave out -n" in ran.text
