"""Inputs and outputs that are optional, integers, a mask or constant: called, guarded, drawn."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5test.backends.base import Unsupported
from d5test.native import compiler, library
from d5test.native.bridges.numpy import plan
from d5test.native.library import Declared, NativeError, NativeFault
from d5test.native.operators import registered_inputs
from d5test.strategies import Draw

X = np.random.default_rng(3).integers(-9, 10, (3, 5)).astype(float)
"""Whole numbers, whose sums are exact in any order."""
DY = np.array([2.0, -3.0, 5.0])
LABELS = np.array([1, 0, 1])
WEIGHTS = np.array([7.0, 11.0])
FACTORS = np.array([11.0, 7.0, 11.0])
MASK = np.random.default_rng(5).integers(-9, 10, X.shape).astype(float)


@pytest.fixture(scope="module")
def ports() -> dict[str, Declared]:
    source = Path(__file__).with_name("ports.cpp")
    return library.declared(compiler.library(source, flags=("-O0",)))


def row(ports, name, **attributes):
    """The function of arrays that a row calls."""
    op = SimpleNamespace(name=name, attributes=attributes)
    return lambda *inputs: plan(ports[name], True, op, *inputs)(*inputs)


def test_what_is_declared(ports):
    one = ports["Weighted"]
    assert [(p.name, p.optional, p.whole, p.mask, p.constant) for p in one.inputs] == [
        ("x", False, False, False, False),
        ("labels", False, True, False, True),
        ("weights", True, False, False, True),
        ("mask", True, False, True, False),
    ]
    assert [(p.optional, p.whole) for p in one.outputs] == [(False, False), (True, True)]
    assert one.inputs[1].regime == ("below", 2)
    assert not one.plain


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("weights", "mask"),
    [(None, None), (WEIGHTS, None), (None, MASK), (WEIGHTS, MASK), (WEIGHTS, MASK > 0)],
    ids=["neither", "weights", "mask", "both", "booleans"],
)
def test_an_absent_input_is_absent(ports, dtype, weights, mask):
    floats = [None if v is None or v.dtype == bool else v.astype(dtype) for v in (weights, mask)]
    inputs = [X.astype(dtype), LABELS, floats[0], mask if floats[1] is None else floats[1]]
    made = ports["Weighted"].make({}, 8 * inputs[0].itemsize, guarded=True)
    share = np.ones_like(X) if mask is None else mask * 1.0
    factors = FACTORS if weights is not None else np.ones(3)
    (y,) = made.forward(inputs)
    assert y.dtype == dtype
    assert np.array_equal(y, (X * share).sum(1) * factors)
    dx, *others, dmask = made.backward([DY.astype(dtype)], inputs, [y])
    dy = (DY * factors)[:, None]
    assert np.array_equal(dx, dy * share)
    assert others == [None, None]
    if floats[1] is None:
        assert dmask is None
    else:
        assert np.array_equal(dmask, dy * X)


def test_an_optional_output_is_there_where_shapes_says_so(ports):
    without, labelled = ports["Weighted"].make, [X, LABELS]
    assert len(without({}, 64, guarded=True).forward(labelled)) == 1
    _, picked = without({"picks": 1}, 64, guarded=True).forward(labelled)
    assert picked.dtype == np.int64
    assert np.array_equal(picked, LABELS)


def test_trailing_inputs_need_not_be_given_and_integers_are_of_any_width(ports):
    weighted = row(ports, "Weighted")
    (y,) = weighted(X, LABELS.astype(np.int32), WEIGHTS)
    assert np.array_equal(y, X.sum(1) * FACTORS)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ((X, None), "Weighted needs its input labels"),
        ((X,), "Weighted needs its input labels"),
        ((X, DY), "labels is of integers, not float64"),
        ((X, LABELS, LABELS), "weights is of float64, not int64"),
        ((X, LABELS, None, None, X), "has 4 inputs, not 5"),
        ((LABELS, LABELS), "Weighted has no input of floating-point numbers"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(ports, inputs, said):
    with pytest.raises(Unsupported, match=said):
        row(ports, "Weighted")(*inputs)


def test_a_library_is_not_called_without_what_it_needs(ports):
    made = ports["Weighted"].make({}, 64, guarded=True)
    with pytest.raises(Unsupported, match="Weighted: input labels is left out"):
        made.forward([X, None])


@pytest.mark.parametrize(
    ("name", "inputs", "said"),
    [
        ("UnwrittenIndices", (X,), "leaves element 14 unwritten of output indices"),
        ("OverwritesLabels", (DY, LABELS), "overwrites input labels"),
        ("WritesBehindMask", (DY, LABELS > 0), "writes 1 bytes beyond the last of input mask"),
    ],
)
def test_faults_with_integers_and_booleans_are_named(ports, name, inputs, said):
    with pytest.raises(NativeFault, match=f"{name}.forward {said}"):
        row(ports, name)(*inputs)


def test_integers_are_not_read_as_numbers_nor_numbers_as_integers(ports):
    with pytest.raises(NativeError, match="throws: tensor 0 is of another type"):
        row(ports, "ReadsIntegersAsNumbers")(DY, LABELS)


def test_they_are_drawn_as_registered(ports):
    seen = set()

    @settings(max_examples=60, database=None, derandomize=True)
    @given(st.data())
    def draw(data):
        drawn = registered_inputs(Draw(data.draw, "float32"), ports["Weighted"])
        _, labels, weights, mask = drawn
        assert labels.dtype == "int64"
        assert set(labels.array(1, 1).tolist()) <= {0, 1}
        seen.add((weights is None, None if mask is None else mask.dtype))

    draw()
    assert seen == {(w, m) for w in (False, True) for m in (None, "bool", "float32")}
