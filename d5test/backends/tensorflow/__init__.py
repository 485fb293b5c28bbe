"""TensorFlow, eager, as graphs (tf.function) and compiled by XLA (jit_compile=True).

ONNX keeps channels second, TensorFlow's CPU kernels keep them last: convolutions and pooling
transpose, pad and split groups around the native function. That moves values and rounds none, so
these rows are native. tf.nn.convolution's own way to dilate is to move values, too.

In graphs, integers that become shapes or axes must be known when the graph is made: where an
operator asks for such a value, all its integer inputs become constants, and new ones a new graph.

Eigen sums float16 in float16 (a column of 16384 ones has the sum 2048), hence the class S of every
row that sums, if only the gradient of what was broadcast.

`eager` and `graphs` are the backends, `table` their rows: the other modules, one a family.
`framework` imports TensorFlow for all of them.
"""

from __future__ import annotations

from d5test.backends.tensorflow.eager import TensorFlow
from d5test.backends.tensorflow.graphs import TensorFlowCompiled, TensorFlowXla
from d5test.backends.tensorflow.table import rows

__all__ = ["TensorFlow", "TensorFlowCompiled", "TensorFlowXla", "rows"]
