"""Numbers that TensorFlow draws by chance: of a seed without a state, else by its generator."""

from typing import Any

from d5test.backends.base import DRAWN, Table
from d5test.backends.tensorflow.framework import tf
from d5test.dtypes import NAMES

rows = Table()


def of_seed(op: Any) -> dict[str, Any]:
    """The argument of functions without a state."""
    return {"seed": (int(op.seed), 0)}


def made(op: Any, x: Any = None) -> dict[str, Any]:
    """Shape and dtype of the result."""
    if x is None:
        return {"shape": op.shape, "dtype": NAMES[op.dtype]}
    return {"shape": x.shape, "dtype": NAMES[op.dtype] if op.dtype else x.dtype}


@rows.native("RandomNormal", "RandomNormalLike", gradient=DRAWN)
def normal(op: Any, x: Any = None) -> Any:
    arguments = {**made(op, x), "mean": op.mean, "stddev": op.scale}
    if op.seed is None:
        return tf.random.normal(**arguments)
    return tf.random.stateless_normal(**arguments, **of_seed(op))


@rows.native("RandomUniform", "RandomUniformLike", gradient=DRAWN)
def uniform(op: Any, x: Any = None) -> Any:
    arguments = {**made(op, x), "minval": op.low, "maxval": op.high}
    if op.seed is None:
        return tf.random.uniform(**arguments)
    return tf.random.stateless_uniform(**arguments, **of_seed(op))


@rows.composed("Bernoulli", gradient=DRAWN)
def bernoulli(op: Any, p: Any) -> Any:
    """A binomial number of one trial, in whole numbers."""
    counts = tf.ones_like(p)
    if op.seed is None:
        drawn = tf.random.get_global_generator().binomial(p.shape, counts, p, tf.int32)
    else:
        drawn = tf.random.stateless_binomial(p.shape, (int(op.seed), 0), counts, p, tf.int32)
    return tf.cast(drawn, NAMES[op.dtype] if op.dtype else p.dtype)


@rows.native("Multinomial", gradient=DRAWN)
def multinomial(op: Any, x: Any) -> Any:
    arguments = {"logits": x, "num_samples": op.sample_size, "dtype": NAMES[op.dtype]}
    if op.seed is None:
        return tf.random.categorical(**arguments)
    return tf.random.stateless_categorical(**arguments, **of_seed(op))
