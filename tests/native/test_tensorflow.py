"""Native operators in TensorFlow: eager and in tf.function, with a registered gradient."""

from pathlib import Path

import pytest

from tests.nightly import at_night

pytest.importorskip("tensorflow")

HERE = Path(__file__).parent
PRELUDE = """
from types import SimpleNamespace
import numpy as np
from d5test.backends.tensorflow.framework import tf
from d5test.native.bridges import available
from d5test.native.bridges.tensorflow import plan
declared = {one.name: one for one in available()}
def op(name, *inputs, guarded=True, **attributes):
    return plan(declared[name], guarded, SimpleNamespace(attributes=attributes), *inputs)
generator = np.random.default_rng(3)
def normal(*shape):
    return tf.constant(generator.standard_normal(shape))
"""


@pytest.fixture
def tensorflow_says(says):
    return lambda code: says(PRELUDE + code)


def test_values_and_gradients_eager_and_in_graphs(tensorflow_says):
    said = tensorflow_says("""
def pulled(f, inputs, dy):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        y = f(*inputs)
    return y, tape.gradient(y, inputs, dy)
x, dy = normal(3, 4), normal(3, 4)
f = op("IPow", x, power=3)
for form in (f, tf.function(f)):
    for pull in (pulled, tf.function(pulled)):
        y, (dx,) = pull(form, [x], dy)
        print(np.allclose(y, x**3, rtol=1e-14), np.allclose(dx, dy * 3 * x**2, rtol=1e-14))
a, b, dc = normal(3, 4), normal(4, 5), normal(3, 5)
c, (da, db) = pulled(op("Product", a, b), [a, b], dc)
print(np.allclose(c, a @ b), np.allclose(da, dc @ tf.transpose(b)),
      np.allclose(db, tf.transpose(a) @ dc))
kept, rest = op("Thin", normal(2, 5), step=3, factors=(10.0, 7.0))(normal(2, 5))
print(kept.shape == (2, 2), rest.shape == (2, 3))
known = tf.function(f, input_signature=[tf.TensorSpec((3, 4), tf.float64)])
print(known.get_concrete_function().output_shapes == (3, 4))
""")
    assert said.split() == ["True"] * 14


def test_refusals_and_faults_are_named(tensorflow_says):
    said = tensorflow_says("""
x = normal(2, 3)
for call in (lambda: op("IPow", tf.cast(x, tf.float16)), lambda: op("Product", x, x)(x, x),
             lambda: op("Unwritten", x)(x), lambda: op("Throws", x, guarded=False)(x)):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
""")
    float16, misfit, unwritten, throws = said.splitlines()
    assert float16 == "Unsupported IPow is compiled for float32 and float64, not float16"
    assert "UnimplementedError" in misfit
    assert "Product: input b has shape (2, 3)" in misfit
    assert "Unwritten.forward leaves element 5 unwritten of output y" in unwritten
    assert "Throws.forward throws: the moon is wrong" in throws


MIXED = """
table, indices = normal(5, 3), tf.constant([[4, 0], [4, 1]], tf.int64)
x, shift, scale, bias = normal(4, 3), normal(4, 3), normal(3), normal(3)
labels, weights, keep = tf.constant([1, 0, 1, 1], tf.int64), normal(2), x > -1
def pulled(f, inputs, dys):
    with tf.GradientTape() as tape:
        for x in inputs:
            if x.dtype.is_floating:
                tape.watch(x)
        ys = f(*inputs)
        ys = ys if isinstance(ys, tuple) else (ys,)
    floats = [y for y in ys if y.dtype.is_floating]
    return ys, tape.gradient(floats, inputs, dys)
def same(f, theirs, *inputs):
    dys = [normal(*y.shape) for y in pulled(theirs, inputs, None)[0] if y.dtype.is_floating]
    zs, slopes = pulled(theirs, inputs, dys)
    for form in (f, tf.function(f)):
        for pull in (pulled, tf.function(pulled)):
            ys, found = pull(form, inputs, dys)
            for y, z in zip(ys, zs, strict=True):
                print(np.allclose(y, z), y.dtype == z.dtype)
            for dx, dz, x in zip(found, slopes, inputs, strict=True):
                print(dx is None if not x.dtype.is_floating else
                      np.allclose(tf.convert_to_tensor(dx), tf.convert_to_tensor(dz)))
def masked(x, keep):
    return tf.nn.softmax(tf.where(keep, x, -np.inf))
def normalised(x, scale, bias=0):
    mean, var = tf.nn.moments(x, [-1], keepdims=True)
    return (x - mean) / tf.sqrt(var + 0.125) * scale + bias
"""


@pytest.fixture
def mixed_says(says):
    """As `tensorflow_says`, with inputs of integers and booleans."""
    return lambda code: says(PRELUDE + MIXED + code)


@pytest.mark.nightly
def test_values_and_gradients_of_what_is_there(mixed_says):
    said = mixed_says("""
for given in (indices, tf.cast(indices, tf.int32)):
    same(op("Embedding", table, given), tf.gather, table, given)
same(op("MaskedSoftmax", x), tf.nn.softmax, x)
same(op("MaskedSoftmax", x, keep), masked, x, keep)
same(op("MaskedSoftmax", x, shift), lambda x, shift: tf.nn.softmax(x + shift), x, shift)
same(op("Normalised", x, scale), normalised, x, scale)
same(op("Normalised", x, scale, bias, tells=1),
     lambda x, scale, bias: (normalised(x, scale, bias), tf.reduce_mean(x, -1), tf.argmax(x, -1)),
     x, scale, bias)
y, picked = op("Weighted", x, labels, None, keep, picks=1)(x, labels, None, keep)
print(np.allclose(y, tf.reduce_sum(tf.where(keep, x, 0), -1)), np.array_equal(picked, labels))
(y,), (dx, _, dw) = pulled(op("Weighted", x, labels, weights), [x, labels, weights], None)
print(dw is None, np.allclose(dx, tf.gather(weights, labels)[:, None] + tf.zeros_like(x)))
""")
    assert set(said.split()) == {"True"}


@pytest.mark.nightly
def test_what_does_not_fit_is_refused_by_name(mixed_says):
    said = mixed_says("""
unknown = tf.TensorSpec((None, 3), tf.float64)
@tf.function(input_signature=[unknown])
def traced(x):
    return op("Normalised", x, scale)(x, scale)
for call in (lambda: op("Embedding", table, scale), lambda: op("Weighted", x, labels, keep),
             lambda: traced.get_concrete_function()):
    try:
        call()
    except Exception as error:
        print(str(error).strip().splitlines()[-1].strip())
""")
    integers, weights, optional = said.splitlines()
    assert integers == "indices is of integers, not float64"
    assert weights == "weights is of float64, not bool"
    assert "Normalised has optional outputs: to make a graph, TensorFlow has to know" in optional


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["tensorflow", "tensorflow-compiled"])
def test_the_suite_validates_integers_masks_and_what_is_optional(
    mixed_judged_by_the_suite, backend
):
    mixed_judged_by_the_suite(backend, "compiled" if backend.endswith("compiled") else "gradient")


@pytest.mark.parametrize("backend", ["tensorflow", at_night("tensorflow-compiled")])
def test_the_suite_validates_it_inside_tensorflow(judged_by_the_suite, backend):
    judged_by_the_suite(backend, "compiled" if backend.endswith("compiled") else "gradient")
