"""All rows of TensorFlow."""

from __future__ import annotations

from d5test.backends.base import Table
from d5test.backends.tensorflow.activations import rows as activations
from d5test.backends.tensorflow.attention import rows as attention
from d5test.backends.tensorflow.convolution import rows as convolution
from d5test.backends.tensorflow.elementwise import rows as elementwise
from d5test.backends.tensorflow.linear import rows as linear
from d5test.backends.tensorflow.losses import rows as losses
from d5test.backends.tensorflow.movement import rows as movement
from d5test.backends.tensorflow.normalisation import rows as normalisation
from d5test.backends.tensorflow.optimizers import rows as optimizers
from d5test.backends.tensorflow.pooling import rows as pooling
from d5test.backends.tensorflow.recurrent import rows as recurrent
from d5test.backends.tensorflow.reductions import rows as reductions
from d5test.backends.tensorflow.softmax import rows as softmax
from d5test.backends.tensorflow.views import rows as views

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
