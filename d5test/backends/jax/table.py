"""All rows of jax."""

from __future__ import annotations

from d5test.backends.base import Table
from d5test.backends.jax.activations import rows as activations
from d5test.backends.jax.attention import rows as attention
from d5test.backends.jax.convolution import rows as convolution
from d5test.backends.jax.elementwise import rows as elementwise
from d5test.backends.jax.linear import rows as linear
from d5test.backends.jax.losses import rows as losses
from d5test.backends.jax.movement import rows as movement
from d5test.backends.jax.normalisation import rows as normalisation
from d5test.backends.jax.optimizers import rows as optimizers
from d5test.backends.jax.pooling import rows as pooling
from d5test.backends.jax.recurrent import rows as recurrent
from d5test.backends.jax.reductions import rows as reductions
from d5test.backends.jax.softmax import rows as softmax
from d5test.backends.jax.views import rows as views

rows = Table(
    activations
    | attention
    | convolution
    | elementwise
    | linear
    | losses
    | movement
    | normalisation
    | optimizers
    | pooling
    | recurrent
    | reductions
    | softmax
    | views
)
