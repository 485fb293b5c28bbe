"""Windows of signals."""

from functools import partial
from typing import Any

from d5test.backends.base import UNDERIVED, Plan, Table, planned
from d5test.backends.tensorflow.framework import integers, tf
from d5test.dtypes import NAMES

rows = Table()


def window(function: Any) -> Any:
    """A function of the length, whether it is periodic, and the dtype."""

    def plan(op: Any, size: Any) -> Plan:
        (n,) = integers(size)
        made = partial(function, n, bool(op.periodic), tf.as_dtype(NAMES[op.output_datatype]))
        return lambda size: made()

    return planned(plan)


rows.native(
    "HammingWindow", gradient=UNDERIVED, values=(0,), contract="0.54 and 0.46",
    source="https://www.tensorflow.org/api_docs/python/tf/signal/hamming_window",
)(window(tf.signal.hamming_window))  # fmt: skip
rows.native("HannWindow", gradient=UNDERIVED, values=(0,))(window(tf.signal.hann_window))
