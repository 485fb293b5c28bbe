"""Classical machine learning, ONNX's domain ai.onnx.ml: thresholds, features, trees."""

from dataclasses import dataclass

import numpy as np

from d5test.case import Operator
from d5test.reference.operators.broadcasting import Broadcasting, PerSample, plain
from d5test.reference.operators.elementwise import Sigmoid
from d5test.reference.operators.reductions import Softmax

__all__ = ["ArrayFeatureExtractor", "Binarizer", "TreeEnsemble"]


class Classical(Operator):
    """An operator of ai.onnx.ml."""

    domain = "ai.onnx.ml"


@dataclass(frozen=True, kw_only=True, repr=False)
class ArrayFeatureExtractor(Classical, PerSample):
    """Entries along the last axis. ONNX ArrayFeatureExtractor-1 of ai.onnx.ml.

    x: (..., n), y: any shape, indices from 0 on in int64; z: (..., size of y), of a vector
    (1, size of y).
    """

    def forward(self, x, y):
        z = np.take(x, np.ravel(y), -1)
        return z if x.ndim > 1 else z.reshape(1, -1)

    def batch(self, *shapes):
        return super().batch(*shapes) if len(shapes[0]) > 1 else None


@dataclass(frozen=True, kw_only=True, repr=False)
class Binarizer(Classical, Broadcasting):
    """1 above a threshold, 0 elsewhere, of a NaN, too. ONNX Binarizer-1 of ai.onnx.ml.

    x, y: any shape.
    """

    threshold: float = 0.0
    exact = True

    def forward(self, x):
        return np.where(x > self.threshold, np.ones_like(x), np.zeros_like(x))


COMPARED = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
"""A feature and a split, by the modes of nodes; the next is `MEMBER`."""
MEMBER = len(COMPARED)
AGGREGATED = ((np.mean, 0.0), (np.sum, 0.0), (np.min, np.inf), (np.max, -np.inf))
"""Weights of one target, and what stands for those of others, by `aggregate_function`."""
TRANSFORMED = (lambda y: y, Softmax().forward, Sigmoid().forward)
"""Scores, by `post_transform`. Of two more ONNX has the names alone: SOFTMAX_ZERO, PROBIT."""


@dataclass(frozen=True, kw_only=True, repr=False)
class TreeEnsemble(Classical, PerSample):
    """The weights of the leaves that a row comes to, one of each tree, aggregated for each target.

    ONNX TreeEnsemble-5 of ai.onnx.ml. x: (n, features), y: (n, `n_targets`). A node compares a
    feature with its split, or asks whether it is in its set; a NaN goes where its track is, the
    way of false without one. `membership_values` are the sets of such nodes in their order, each
    ends with a NaN. A target without a leaf, of which ONNX says nothing, is 0.
    """

    aggregate_function: int = 1
    leaf_targetids: tuple[int, ...]
    leaf_weights: tuple[str, tuple[int, ...], tuple[float, ...]]
    membership_values: tuple[str, tuple[int, ...], tuple[float, ...]] | None = None
    n_targets: int
    nodes_falseleafs: tuple[int, ...]
    nodes_falsenodeids: tuple[int, ...]
    nodes_featureids: tuple[int, ...]
    nodes_hitrates: tuple[str, tuple[int, ...], tuple[float, ...]] | None = None
    nodes_missing_value_tracks_true: tuple[int, ...] | None = None
    nodes_modes: tuple[str, tuple[int, ...], tuple[int, ...]]
    nodes_splits: tuple[str, tuple[int, ...], tuple[float, ...]]
    nodes_trueleafs: tuple[int, ...]
    nodes_truenodeids: tuple[int, ...]
    post_transform: int = 0
    tree_roots: tuple[int, ...]
    since = 5

    def forward(self, x):
        leaf = np.stack([self.leaf(x, root) for root in self.tree_roots], 1)
        target = np.array(self.leaf_targetids)[leaf]
        weights = np.zeros_like(x, shape=len(self.leaf_targetids))
        weights[...] = self.leaf_weights[2]
        own = target[..., np.newaxis] == np.arange(self.n_targets)  # (n, trees, targets)
        aggregated, absent = AGGREGATED[self.aggregate_function]
        y = aggregated(np.where(own, weights[leaf][..., np.newaxis], absent), axis=1)
        return TRANSFORMED[self.post_transform](np.where(own.any(1), y, 0.0))

    def leaf(self, x, root):
        """The leaf of the tree with this root that each row of x comes to, (n,)."""
        true = either(self.nodes_truenodeids, self.nodes_trueleafs)
        false = either(self.nodes_falsenodeids, self.nodes_falseleafs)
        place = np.full(len(x), root)
        for _ in true:  # no tree is deeper
            (rows,) = np.nonzero(place >= 0)
            node = place[rows]
            feature = plain(x)[rows, np.array(self.nodes_featureids)[node]]
            place[rows] = np.where(self.holds(feature, node), true[node], false[node])
        if (place >= 0).any():
            raise ValueError("the nodes of a tree form a circle")
        return ~place

    def holds(self, feature, node):
        """Whether a node sends a feature the way of true. feature, node: (n,)."""
        modes, splits = np.array(self.nodes_modes[2]), np.array(self.nodes_splits[2])
        tracks = np.array(self.nodes_missing_value_tracks_true or np.zeros(len(modes)))
        member = (feature[:, np.newaxis] == self.sets(modes)[node]).any(1)
        compared = [function(feature, splits[node]) for function in COMPARED]
        holds = np.choose(modes[node], [*compared, member])
        return np.where(np.isnan(feature), tracks[node] == 1, holds)

    def sets(self, modes):
        """The set of each node, filled up with NaN, which no feature equals: (nodes, most)."""
        numbers = np.array(self.membership_values[2] if self.membership_values else ())
        sets = np.split(numbers, np.flatnonzero(np.isnan(numbers)) + 1)
        filled = np.full((len(modes), max(map(len, sets))), np.nan)
        for node, own in zip(np.flatnonzero(modes == MEMBER), sets, strict=False):
            filled[node, : len(own)] = own
        return filled


def either(ids, leafs):
    """What follows: the place of a node, or the complement of that of a leaf."""
    return np.where(leafs, np.invert(ids), ids)
