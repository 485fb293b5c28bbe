"""What is read between elements, in other orders."""

import numpy as np

from d5test.reference.formulas.table import Table
from d5test.reference.operators import sampling


class MaximumOfInterpolated(sampling.RoiAlign):
    """RoiAlign whose maximum is that of the points, each interpolated first.

    So the text of ONNX has it, and OpenVINO; ONNX's node cases take that of the products.
    """

    def forward(self, x, rois, batch_indices):
        if self.mode != "max":
            return super().forward(x, rois, batch_indices)
        y = self.empty(x, batch_indices)
        for i, places, weights, points in self.regions(x, rois, batch_indices):
            y[i] = self.interpolated(x, places, weights, points).max(2)
        return np.moveaxis(y, -1, 1)

    def backward(self, grads, inputs, outputs):
        if self.mode != "max":
            return super().backward(grads, inputs, outputs)
        (dy,), (x, *regions) = grads, inputs
        dy = np.moveaxis(dy, 1, -1)
        dx = np.zeros_like(dy, shape=np.moveaxis(x, 1, -1).shape)
        for i, places, weights, points in self.regions(x, *regions):
            values = self.interpolated(x, places, weights, points)
            first = np.argmax(values, axis=2, keepdims=True)
            chosen = np.zeros_like(values)
            np.put_along_axis(chosen, first, np.expand_dims(dy[i], 2), 2)
            bins, (down, across) = weights.shape[:2], points
            spread = chosen.reshape(*bins, down, 1, across, 1, -1) * np.ones((2, 1, 2, 1))
            np.add.at(dx, places, spread.reshape(*bins, 4 * down * across, -1) * weights)
        return np.moveaxis(dx, -1, 1), None, None

    def interpolated(self, x, places, weights, points):
        """The values at the points, (bins, bins, points, channels)."""
        down, across = points
        terms = np.moveaxis(x, 1, -1)[places] * weights
        each = terms.reshape(*terms.shape[:2], down, 2, across, 2, terms.shape[-1])
        return each.sum(5).sum(3).reshape(*terms.shape[:2], down * across, terms.shape[-1])


FORMULAS: Table = {"maximum of interpolated": {sampling.RoiAlign: MaximumOfInterpolated}}
