"""Products of 8 bits that are added up in 16."""

import numpy as np

from d5test.reference.formulas.table import Table
from d5test.reference.operators.quantisation import ConvInteger, MatMulInteger, QLinearMatMul


def lost_in_pairs(a, b):
    """What a product of matrices lacks whose terms are added in twos that saturate at 16 bits.

    a: (..., m, k) of uint8, b: (..., k, n) of int8; or vectors (k,). So does x86's instruction
    VPMADDUBSW.
    """
    a, b = a.astype(np.int64), b.astype(np.int64)
    ends, lost = np.iinfo(np.int16), 0
    for k in range(0, a.shape[-1], 2):
        two = a[..., k : k + 2] @ (b[k : k + 2] if b.ndim == 1 else b[..., k : k + 2, :])
        lost = lost + np.clip(two, ends.min, ends.max) - two
    return lost


class MatMulIntegerInPairs(MatMulInteger):
    """MatMulInteger of uint8 and int8, whose terms are added in twos that saturate at 16 bits."""

    def forward(self, a, b, a_zero=None, b_zero=None):
        y = super().forward(a, b, a_zero, b_zero)
        mixed = (a.dtype, b.dtype) == (np.uint8, np.int8)
        return (y + lost_in_pairs(a, b)).astype(y.dtype) if mixed else y


class QLinearMatMulInPairs(QLinearMatMul):
    """The same, requantised."""

    product = MatMulIntegerInPairs


class ConvIntegerInPairs(ConvInteger):
    """ConvInteger as a product of the filters, in uint8, and of what they lie on, in int8."""

    def forward(self, x, w, x_zero=None, w_zero=None):
        y = super().forward(x, w, x_zero, w_zero)
        if (w.dtype, x.dtype) != (np.uint8, np.int8):
            return y
        windows = self.windows(x.shape, w.shape)
        under = windows.view(x, fill=0 if x_zero is None else x_zero)
        grouped = under.reshape(len(x), self.group, -1, *under.shape[2:])
        rank = len(windows.out)
        columns = np.moveaxis(grouped, range(3, 3 + rank), range(-rank, 0))
        columns = columns.reshape(len(x), self.group, -1, int(np.prod(windows.out)))
        filters = w.reshape(self.group, len(w) // self.group, -1)
        return (y + np.reshape(lost_in_pairs(filters, columns), y.shape)).astype(y.dtype)


FORMULAS: Table = {
    "pairs saturate at 16 bits": {
        MatMulInteger: MatMulIntegerInPairs,
        QLinearMatMul: QLinearMatMulInPairs,
        ConvInteger: ConvIntegerInPairs,
    }
}
