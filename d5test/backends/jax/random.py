"""Numbers that jax draws by chance: of a key, which a seed makes."""

from typing import Any

from d5test.backends.base import DRAWN, Table, Unsupported
from d5test.backends.jax.framework import Array, jax
from d5test.dtypes import NAMES

rows = Table()


def key(op: Any) -> Array:
    """The key of a seed."""
    if op.seed is None:
        raise Unsupported("jax.random has a key for each call")
    return jax.random.key(int(op.seed))


def made(op: Any, x: Array | None = None) -> dict[str, Any]:
    """Shape and dtype of the result."""
    if x is None:
        return {"shape": op.shape, "dtype": NAMES[op.dtype]}
    return {"shape": x.shape, "dtype": NAMES[op.dtype] if op.dtype else x.dtype}


@rows.composed("RandomNormal", "RandomNormalLike", gradient=DRAWN)
def normal(op: Any, x: Array | None = None) -> Array:
    return op.mean + op.scale * jax.random.normal(key(op), **made(op, x))


@rows.native("RandomUniform", "RandomUniformLike", gradient=DRAWN)
def uniform(op: Any, x: Array | None = None) -> Array:
    return jax.random.uniform(key(op), **made(op, x), minval=op.low, maxval=op.high)


@rows.native("Bernoulli", gradient=DRAWN)
def bernoulli(op: Any, p: Array) -> Array:
    return jax.random.bernoulli(key(op), p).astype(NAMES[op.dtype] if op.dtype else p.dtype)


@rows.native("Multinomial", gradient=DRAWN)
def multinomial(op: Any, x: Array) -> Array:
    drawn = jax.random.categorical(key(op), x, shape=(op.sample_size, len(x)))
    return drawn.T.astype(NAMES[op.dtype])
