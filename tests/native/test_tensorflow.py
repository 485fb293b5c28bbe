"""Native operators in TensorFlow: eager and in tf.function, with a registered gradient."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    assert float16 == "Unsupported IPow has inputs of float32 or float64, all of one"
    assert "UnimplementedError" in misfit
    assert "Product: input b has shape (2, 3)" in misfit
    assert "Unwritten.forward leaves element 5 unwritten of output y" in unwritten
    assert "Throws.forward throws: the moon is wrong" in throws


@pytest.mark.parametrize("backend", ["tensorflow", "tensorflow-compiled"])
def test_the_suite_validates_it_inside_tensorflow(judged_by_the_suite, backend):
    judged_by_the_suite(backend, "compiled" if backend.endswith("compiled") else "gradient")
