"""Compiled operators on NumPy arrays: what they declare, compute, and are caught at."""

import ctypes
import re
from collections.abc import Iterator

import numpy as np
import pytest

from d5test.backends.base import Unsupported
from d5test.native.library import Declared, NativeError, NativeFault

X = np.random.default_rng(1).standard_normal((2, 3, 5))
DY = np.random.default_rng(2).standard_normal(X.shape)


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x,
        lambda x: np.ascontiguousarray(x.T).T,
        lambda x: x[::-1, :, ::-1].copy()[::-1, :, ::-1],
        lambda x: np.stack((x, 0 * x), -1)[..., 0],
    ],
    ids=["contiguous", "transposed", "reversed", "strided"],
)
@pytest.mark.parametrize("guarded", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_values_do_not_depend_on_the_layout(faults, layout, guarded, dtype):
    x = layout(X.astype(dtype))
    op = faults["Right"].make({}, 8 * x.itemsize, guarded=guarded)
    (y,) = op.forward([x])
    assert y.dtype == x.dtype
    assert np.array_equal(y, 3 * X.astype(dtype))
    (dx,) = op.backward([DY.astype(dtype)], [x], [y])
    assert np.array_equal(dx, 3 * DY.astype(dtype))


@pytest.mark.parametrize("x", [np.array(2.0), np.ones((3, 0, 2)), np.ones(1)])
def test_scalars_and_nothing_at_all(faults, x):
    (y,) = faults["Right"].make({}, 64, guarded=True).forward([x])
    assert y.shape == x.shape
    assert np.array_equal(y, 3 * x)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("WritesBehind", "WritesBehind.forward writes 8 bytes beyond the last of output y"),
        ("WritesBefore", "WritesBefore.forward writes 16 bytes before the first of output y"),
        ("Unwritten", "Unwritten.forward leaves element 29 unwritten of output y"),
        ("OverwritesInput", "OverwritesInput.forward overwrites input x"),
        ("Leaks", "Leaks.forward keeps "),
    ],
)
def test_a_forward_that_touches_what_is_not_its_own_is_named(
    faults: dict[str, Declared], name: str, said: str
) -> None:
    with pytest.raises(NativeFault, match=said):
        faults[name].make({}, 64, guarded=True).forward([X])


LEAK = 100 * X.itemsize
"""Bytes that `Leaks` of faults.cpp keeps."""


@pytest.fixture(params=["whole", "full of holes"])
def heap(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the second, blocks of the size that leaks are free: glibc takes several at once."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(LEAK) for _ in range(1000)]
    holes = blocks[::2] if request.param == "full of holes" else []
    for block in holes:
        libc.free(block)
    yield
    for block in set(blocks) - set(holes):
        libc.free(block)


@pytest.mark.usefixtures("heap")
def test_the_leak_has_the_size_of_what_is_kept(faults: dict[str, Declared]) -> None:
    with pytest.raises(NativeFault, match="bytes of memory at each call") as told:
        faults["Leaks"].make({}, 64, guarded=True).forward([X])
    found = re.search(r"keeps (\d+) bytes", str(told.value))
    assert found is not None
    assert int(found[1]) == pytest.approx(LEAK, rel=0.15)


@pytest.mark.usefixtures("heap")
def test_what_is_given_back_is_no_leak(faults: dict[str, Declared]) -> None:
    for _ in range(20):
        faults["Right"].make({}, 64, guarded=True).forward([X])


def test_a_workspace_is_no_leak(faults):
    op = faults["KeepsWorkspace"].make({}, 64, guarded=True)
    for size in (3, 300, 3000):
        assert np.array_equal(op.forward([np.ones(size)])[0], np.full(size, 3.0))


def test_an_unwritten_gradient_is_named(faults):
    op = faults["UnwrittenGradient"].make({}, 32, guarded=True)
    x = X.astype("float32")
    said = "UnwrittenGradient.backward leaves element 0 unwritten of the gradient of input x"
    with pytest.raises(NativeFault, match=said):
        op.backward([x], [x], [3 * x])


def test_what_an_operator_throws_is_told(faults):
    with pytest.raises(NativeError, match=r"Throws\.forward throws: the moon is wrong"):
        faults["Throws"].make({}, 64, guarded=False).forward([X])


def test_several_inputs_and_outputs(shapes):
    a, b = X[:, :, 0], X[0, :, :4]
    (c,) = shapes["Product"].make({}, 64, guarded=True).forward([a, b])
    assert np.allclose(c, a @ b, rtol=1e-14, atol=1e-14)
    dc = DY[:, 0, :4]
    da, db = shapes["Product"].make({}, 64, guarded=True).backward([dc], [a, b], [c])
    assert np.allclose(da, dc @ b.T, rtol=1e-14, atol=1e-14)
    assert np.allclose(db, a.T @ dc, rtol=1e-14, atol=1e-14)


def test_attributes_and_a_shape_function(shapes):
    declared = shapes["Thin"]
    assert [(c.name, c.default, c.others) for c in declared.attributes] == [
        ("step", 2, (3,)),
        ("factors", (1.0, 2.0), ()),
    ]
    x = X[0]
    kept, rest = declared.make({"step": 3, "factors": (10, 7)}, 64, guarded=True).forward([x])
    assert np.array_equal(kept, 10 * x[:, ::3])
    assert np.array_equal(rest, 7 * x[:, [1, 2, 4]])
    assert not declared.differentiable
    assert shapes["Product"].differentiable


@pytest.mark.parametrize(
    ("attributes", "said"),
    [({"stride": 2}, "no attribute stride"), ({"step": 0}, "Thin: a step is positive")],
)
def test_what_an_operator_does_not_have_is_unsupported(shapes, attributes, said):
    with pytest.raises(Unsupported, match=said):
        shapes["Thin"].make(attributes, 64, guarded=True)


def test_an_attribute_of_another_type_is_refused(shapes):
    with pytest.raises(TypeError, match=r"attribute step is whole, not 2\.5"):
        shapes["Thin"].make({"step": 2.5}, 64, guarded=True)


def test_axes_of_one_name_have_one_size(shapes):
    op = shapes["Product"].make({}, 64, guarded=True)
    with pytest.raises(Unsupported, match=r'Product: input b has shape \(3, 5\), not "k n"'):
        op.forward([X[0], X[1]])
