"""TensorFlow that is wrong where no row goes: in a layer, and in what a tape tells twice."""

from typing import Any

import keras
import tensorflow as tf

honest = keras.layers.Dense.call


def dense(layer: Any, x: Any, training: Any = None) -> Any:
    """Is off by 1%."""
    return 1.01 * honest(layer, x)


class Tape(tf.GradientTape):
    """Of a second question the answer is twice that of the first."""

    asked = False

    def gradient(self, *arguments: Any, **options: Any) -> Any:
        slopes = super().gradient(*arguments, **options)
        if not self._persistent:
            return slopes
        again, self.asked = self.asked, True
        return [2 * slope for slope in slopes] if again else slopes


keras.layers.Dense.call = dense
tf.GradientTape = Tape

from d5test.backends.tensorflow import TensorFlow


class Broken(TensorFlow):
    """All of these."""
