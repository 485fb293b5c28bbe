"""What is chosen of all there is: how much that is depends on the values. Without a gradient."""

from dataclasses import dataclass

import numpy as np

from d5test.case import Operator
from d5test.reference.operators.broadcasting import plain

__all__ = ["NonMaxSuppression", "NonZero", "Unique"]


class Selection(Operator):
    """An operator of whose outputs no rounding changes an element."""

    exact = True
    sized_by_values = True


@dataclass(frozen=True, kw_only=True, repr=False)
class NonZero(Selection):
    """Where elements are not zero, in row-major order. ONNX NonZero-13.

    x: any shape with an axis, of numbers or booleans; y: (rank of x, n), indices in int64.
    """

    since = 13

    def forward(self, x):
        return np.stack(np.nonzero(x != 0))


@dataclass(frozen=True, kw_only=True, repr=False)
class Unique(Selection):
    """The elements that differ, or the slices along `axis`. ONNX Unique-28.

    x: any shape. y: (n,), or as x with n slices, in their order, or if not `sorted` in that in
    which they come first; that place in x, (n,); the place in y of each element or slice of x,
    (m,); how many there are of each, (n,). Places and counts are in int64.
    """

    axis: int | None = None
    sorted: int = 1
    since = 28

    def forward(self, x):
        y, first, inverse, counts = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=self.axis
        )
        order = np.arange(len(first)) if self.sorted else np.argsort(first)
        y = np.take(y, order, self.axis or 0)
        return y, first[order], np.argsort(order)[inverse.reshape(-1)], counts[order]


@dataclass(frozen=True, kw_only=True, repr=False)
class NonMaxSuppression(Selection):
    """Of boxes that overlap, those with the highest scores. ONNX NonMaxSuppression-11.

    boxes: (b, n, 4), two opposite corners (y, x, y, x), or with `center_point_box` the centre and
    the sides (x, y, width, height). scores: (b, c, n). In each batch and class, boxes are taken
    from the highest score down to `score_threshold`, without those that a box taken before covers
    by more than `iou_threshold` of the area of both; max_output_boxes_per_class (without, none) at
    most. y: (k, 3) in int64, the batch, the class and the box of each that was taken.
    """

    center_point_box: int = 0
    since = 11

    def forward(
        self, boxes, scores, max_output_boxes_per_class=None, iou_threshold=None,
        score_threshold=None,
    ):  # fmt: skip
        most = 0 if max_output_boxes_per_class is None else int(max_output_boxes_per_class.max())
        threshold = 0.0 if iou_threshold is None else iou_threshold.reshape(())
        low, high = (corner[:, :, None] for corner in self.corners(boxes))
        top, bottom = np.minimum(high, high.swapaxes(1, 2)), np.maximum(low, low.swapaxes(1, 2))
        overlap = top > bottom
        both = overlap[..., 0] & overlap[..., 1]
        shared = np.where(both, (top - bottom).prod(-1), -1)
        area = (high - low).prod(-1)
        covers = plain(shared > threshold * (area + area.swapaxes(1, 2) - shared))
        above = plain(scores > (-np.inf if score_threshold is None else score_threshold))
        higher = plain(scores[:, :, None] > scores[..., None]).sum(-1)
        taken = []
        for b, c in np.ndindex(*scores.shape[:2]):
            kept: list[int] = []
            for i in np.argsort(higher[b, c], kind="stable"):
                if above[b, c, i] and len(kept) < most and not covers[b, i, kept].any():
                    kept.append(i)
            taken += [(b, c, i) for i in kept]
        return np.array(taken, np.int64).reshape(-1, 3)

    def corners(self, boxes):
        """The lower and the upper corner of each box, (b, n, 2)."""
        if self.center_point_box:
            centre, half = boxes[..., :2], boxes[..., 2:] / 2
            return centre - half, centre + half
        one, other = boxes[..., :2], boxes[..., 2:]
        return np.minimum(one, other), np.maximum(one, other)
