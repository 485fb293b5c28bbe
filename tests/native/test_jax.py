"""Native operators in JAX: eager, under jit, vmap and grad."""

from pathlib import Path

import pytest

from tests.nightly import at_night

pytest.importorskip("jax")

HERE = Path(__file__).parent
PRELUDE = """
import numpy as np
import d5test.native.bridges.jax
from d5test.backends.jax.framework import jax, jnp
from d5test.native.bridges import available
from d5test.native.bridges.jax import Called
declared = {one.name: one for one in available()}
def op(name, dtype="float64", guarded=True, **attributes):
    return Called(declared[name], attributes, np.dtype(dtype), guarded)
generator = np.random.default_rng(3)
def normal(*shape):
    return jnp.asarray(generator.standard_normal(shape))
"""


@pytest.fixture
def jax_says(says):
    return lambda code: says(PRELUDE + code)


def test_values_and_gradients_eager_compiled_and_mapped(jax_says):
    said = jax_says("""
x, dy = normal(3, 4), normal(3, 4)
f = op("IPow", power=3)
for form in (f, jax.jit(f), jax.vmap(f), jax.jit(jax.vmap(f))):
    y, pull = jax.vjp(form, x)
    print(np.allclose(y, x**3, rtol=1e-14), np.allclose(pull(dy)[0], dy * 3 * x**2, rtol=1e-14))
a, b, dc = normal(3, 4), normal(4, 5), normal(3, 5)
c, pull = jax.vjp(jax.jit(op("Product")), a, b)
da, db = pull(dc)
print(np.allclose(c, a @ b), np.allclose(da, dc @ b.T), np.allclose(db, a.T @ dc))
kept, rest = jax.jit(op("Thin", step=3, factors=(10.0, 7.0)))(normal(2, 5))
print(kept.shape == (2, 2), rest.shape == (2, 3))
""")
    assert said.split() == ["True"] * 13


def test_refusals_and_faults_are_named(jax_says):
    said = jax_says("""
for call in (lambda: op("IPow", "float16"), lambda: op("Product")(normal(2, 3), normal(2, 3)),
             lambda: op("Unwritten")(normal(3)), lambda: op("Throws", guarded=False)(normal(3)),
             lambda: jax.grad(jax.grad(op("IPow", power=3)))(1.5)):
    try:
        jax.block_until_ready(call())
    except Exception as error:
        print(type(error).__name__, str(error).splitlines()[0])
""")
    float16, misfit, unwritten, throws, twice = said.splitlines()
    assert float16 == "Unsupported IPow is compiled for float32 and float64, not float16"
    assert misfit == "Unsupported Product: input b does not fit at axis k"
    assert "Unwritten.forward leaves element 2 unwritten of output y" in unwritten
    assert "Throws.forward throws: the moon is wrong" in throws
    assert twice


MIXED = """
from jax.nn import softmax
table, indices = normal(5, 3), jnp.array([[4, 0], [4, 1]])
x, shift, scale, bias = normal(4, 3), normal(4, 3), normal(3), normal(3)
labels, weights, keep = jnp.array([1, 0, 1, 1]), jnp.array([7.0, 11.0]), x > -1
def same(ours, theirs, *inputs):
    (y, pull), (z, pull_z) = jax.vjp(ours, *inputs), jax.vjp(theirs, *inputs)
    for a, b in zip(jax.tree.leaves(y), jax.tree.leaves(z), strict=True):
        print(np.allclose(a, b), a.dtype == b.dtype)
    dy = jax.tree.map(lambda a: normal(*a.shape) if jnp.issubdtype(a.dtype, jnp.floating)
                      else np.zeros(a.shape, jax.dtypes.float0), y)
    for a, b in zip(pull(dy), pull_z(dy), strict=True):
        print(a is b is None or a.dtype == b.dtype and (a.dtype == jax.dtypes.float0
              or np.allclose(a, b)))
def normalised(x, scale, bias=0):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(var + 0.125) * scale + bias
"""


@pytest.fixture
def mixed_says(says):
    """As `jax_says`, with inputs of integers and booleans."""
    return lambda code: says(PRELUDE + MIXED + code)


@pytest.mark.nightly
def test_values_and_gradients_of_what_is_there(mixed_says):
    said = mixed_says("""
for form in (lambda f: f, jax.jit):
    look = form(op("Embedding"))
    same(look, lambda table, indices: table[indices], table, indices)
    same(look, lambda table, indices: table[indices], table, indices.astype(np.int32))
    soft = form(op("MaskedSoftmax"))
    same(soft, softmax, x)
    same(soft, lambda x, keep: softmax(jnp.where(keep, x, -jnp.inf)), x, keep)
    same(soft, lambda x, shift: softmax(x + shift), x, shift)
    same(form(op("Normalised")), normalised, x, scale)
    same(form(op("Normalised", tells=1)),
         lambda x, scale, bias: (normalised(x, scale, bias), x.mean(-1), x.argmax(-1)),
         x, scale, bias)
    y, picked = form(op("Weighted", picks=1))(x, labels, None, keep)
    print(np.allclose(y, (x * keep).sum(-1)), np.array_equal(picked, labels))
    dw = jax.grad(lambda w: form(op("Weighted"))(x, labels, w).sum())(weights)
    print(np.array_equal(dw, [0, 0]))
""")
    assert set(said.split()) == {"True"}


@pytest.mark.nightly
def test_mapped_over_integers_and_masks(mixed_says):
    said = mixed_says("""
look = jax.jit(jax.vmap(op("Embedding"), in_axes=(None, 0)))
same(look, lambda table, indices: table[indices], table, indices)
same(jax.vmap(lambda x, keep: op("MaskedSoftmax")(x[None], keep[None])[0]),
     lambda x, keep: softmax(jnp.where(keep, x, -jnp.inf)), x, keep)
""")
    assert set(said.split()) == {"True"}


@pytest.mark.nightly
def test_what_does_not_fit_is_refused_by_name(mixed_says):
    said = mixed_says("""
for name, inputs in (("Embedding", (table, scale)), ("Weighted", (x, labels, keep)),
                     ("Weighted", (x, labels, labels))):
    try:
        op(name)(*inputs)
    except Exception as error:
        print(type(error).__name__, error)
""")
    assert said.splitlines() == [
        "Unsupported indices is of integers, not float64",
        "Unsupported weights is of float64, not bool",
        "Unsupported weights is of float64, not int64",
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["jax", "jax-compiled"])
def test_the_suite_validates_integers_masks_and_what_is_optional(
    mixed_judged_by_the_suite, backend
):
    mixed_judged_by_the_suite(backend, "compiled" if backend.endswith("compiled") else "gradient")


@pytest.mark.parametrize("backend", ["jax", at_night("jax-compiled")])
def test_the_suite_validates_it_inside_jax(judged_by_the_suite, backend):
    judged_by_the_suite(backend, "compiled" if backend.endswith("compiled") else "gradient")
