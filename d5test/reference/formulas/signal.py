"""Transforms and the windows of signals."""

from dataclasses import replace

import numpy as np

from d5test.reference.formulas.table import Table
from d5test.reference.operators import signal


class MirroredAsGiven(signal.DFT):
    """An inverse transform whose half of a spectrum is mirrored as it is given, of any length.

    Of an even length the last element that is given has no mirror image, as is right of the whole
    half alone; more elements are mirrored over those that are there.
    """

    def spectrum(self, x, dft_length, axis):
        """The whole spectrum, (..., n, 2), and its transform."""
        transform, axis = self._transform(x, dft_length, axis)
        x, n = np.moveaxis(x, axis, -2), transform.n
        m = x.shape[-2]
        whole = np.zeros_like(x, shape=(*x.shape[:-2], n, 2))
        whole[..., :m, :] = x[..., :n, :]
        for k in range(1, min(m - (n % 2 == 0), n + 1)):
            whole[..., n - k, 0], whole[..., n - k, 1] = x[..., k, 0], -x[..., k, 1]
        return whole, replace(transform, onesided=False), axis

    def forward(self, x, dft_length=None, axis=None):
        if not (self.inverse and self.onesided):
            return super().forward(x, dft_length, axis)
        whole, transform, axis = self.spectrum(x, dft_length, axis)
        return np.moveaxis(transform(whole)[..., :1], -2, axis)

    def normwise(self, x, dft_length=None, axis=None):
        if not (self.inverse and self.onesided):
            return super().normwise(x, dft_length, axis)
        whole, transform, axis = self.spectrum(x, dft_length, axis)
        return (np.moveaxis(transform.normwise(whole), -2, axis),)


class ReciprocalInSingle(MirroredAsGiven):
    """The same, and 1 / n of an inverse transform is rounded to float32."""

    def forward(self, x, dft_length=None, axis=None):
        y = super().forward(x, dft_length, axis)
        n = self._transform(x, dft_length, axis)[0].n
        return y * (n * float(np.float32(1 / n))) if self.inverse else y


class HammingOfHundredths(signal.HammingWindow):
    """The Hamming window with the two digits that Hamming gave."""

    terms = (0.54, 0.46)


class SymmetricOddHann(signal.HannWindow):
    """A periodic window that is the symmetric one where its length is odd."""

    def period(self, size):
        return size - 1 + self.periodic * (1 - int(size) % 2)


class SymmetricOddHamming(SymmetricOddHann, HammingOfHundredths):
    """The same of a Hamming window, of its two digits."""

    terms = HammingOfHundredths.terms


FORMULAS: Table = {
    "mirrored as given": {signal.DFT: MirroredAsGiven},
    "1 / n in float32": {signal.DFT: ReciprocalInSingle},
    "0.54 and 0.46": {signal.HammingWindow: HammingOfHundredths},
    "symmetric of odd lengths": {
        signal.HannWindow: SymmetricOddHann,
        signal.HammingWindow: SymmetricOddHamming,
    },
}
