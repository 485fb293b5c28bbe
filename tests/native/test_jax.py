"""Native operators in JAX: eager, under jit, vmap and grad."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.parametrize("backend", ["jax", "jax-compiled"])
def test_the_suite_validates_it_inside_jax(judged_by_the_suite, backend):
    judged_by_the_suite(backend, "compiled" if backend.endswith("compiled") else "gradient")
