"""Cases of classical machine learning: numbers at thresholds, trees of every comparison."""

import math
from dataclasses import dataclass, field
from typing import Any

from d5test.case import Tensor
from d5test.reference.operators import classical
from d5test.strategies.draw import Draw, Regime
from d5test.strategies.registry import attributes, choices, inputs

DEEP = 2
"""Nodes below the root of a tree, one below the other, at most."""
FEATURES: tuple[Regime, ...] = (
    "ties", "normal", ("often", 1.0, math.nan), ("naturals", 4), ("near", 1.0),
)  # fmt: skip
"""At splits and members, beside them, missing."""
NOT_EQUAL = 5
"""The mode of a node for which ONNX's evaluator finds a NaN unequal, whatever its track says."""

choices(classical.Binarizer, threshold=(0.0, 1.0, -0.5))


@inputs(classical.Binarizer)
def binarizer_inputs(d: Draw, op: classical.Binarizer) -> tuple[Tensor]:
    """Numbers at the threshold, beside it, and others."""
    at = op.threshold
    return (d.tensor(d.shape(1), "normal", ("often", at), ("near", at)),)


@inputs(classical.ArrayFeatureExtractor)
def extractor_inputs(d: Draw, op: classical.ArrayFeatureExtractor) -> tuple[Tensor, Tensor]:
    """Some entries, some of them twice; the indices in one row, or in any shape."""
    shape = d.shape(1, empty=False)
    return d.tensor(shape), d.index(d.choose(((d.side(),), (1, d.side()), (2, 3))), shape[-1])


@dataclass
class Forest:
    """Trees in preorder, as they grow.

    A node is its branches, of true and of false: whether it is a leaf, and which. A leaf is its
    tree.
    """

    d: Draw
    nodes: list[list[tuple[int, int]]] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)

    def grow(self, tree: int, deep: int = DEEP) -> int:
        """A node and what is below it; its place. Both of its branches may be one leaf."""
        place, branches = len(self.nodes), list[tuple[int, int]]()
        self.nodes.append(branches)
        for _ in range(2):
            if deep and self.d.flag():
                branches.append((0, self.grow(tree, deep - 1)))
            else:
                if not branches or branches[0][0] == 0 or self.d.integer(0, 5) < 5:
                    self.leaves.append(tree)
                branches.append((1, len(self.leaves) - 1))
        return place


@attributes(classical.TreeEnsemble)
def tree_attributes(d: Draw) -> classical.TreeEnsemble:
    """Nodes of one mode or of any, whole numbers in splits and sets, weights small or large.

    Of extremes a tree has one target, and each target a tree: what is without one ONNX leaves
    open. A node of `NOT_EQUAL` sends NaN the way of true, as all agree.
    """
    forest, seed = Forest(d), d.integer(0, 2**32 - 1)
    aggregate, targets = d.choose((1, 0, 2, 3)), d.integer(1, 3)
    roots = tuple(forest.grow(tree) for tree in range(targets + d.integer(0, 3)))
    n, leaves = len(forest.nodes), len(forest.leaves)

    def drawn(position: int, count: int, *values: Any, dtype: str = "int64") -> tuple[Any, ...]:
        x = Tensor((count,), dtype, values).array(seed, position)
        return tuple(x.tolist())

    modes = drawn(0, n, "below", 7) if d.flag() else (d.integer(0, classical.MEMBER),) * n
    sets = [
        (*drawn(10 + i, 1 + i % 3, "ties", dtype="float64"), math.nan)
        for i in range(modes.count(classical.MEMBER))
    ]
    members = tuple(x for one in sets for x in one)
    tracks = drawn(1, n, "below", 2)
    missing = tuple(int(t or m == NOT_EQUAL) for t, m in zip(tracks, modes, strict=True))
    (true_leaf, true), (false_leaf, false) = (
        zip(*branch, strict=True) for branch in zip(*forest.nodes, strict=True)
    )
    weights = d.choose((("normal",), ("scaled", 10)))
    return classical.TreeEnsemble(
        aggregate_function=aggregate,
        leaf_targetids=tuple(tree % targets for tree in forest.leaves)
        if aggregate > 1
        else drawn(2, leaves, "below", targets),
        leaf_weights=(d.dtype, (leaves,), drawn(3, leaves, *weights, dtype=d.dtype)),
        membership_values=(d.dtype, (len(members),), members) if members else None,
        n_targets=targets,
        nodes_falseleafs=false_leaf,
        nodes_falsenodeids=false,
        nodes_featureids=drawn(4, n, "below", d.integer(1, 3)),
        nodes_missing_value_tracks_true=missing if NOT_EQUAL in modes else d.maybe(missing),
        nodes_modes=("uint8", (n,), modes),
        nodes_splits=(d.dtype, (n,), drawn(5, n, "ties", dtype="float64")),
        nodes_trueleafs=true_leaf,
        nodes_truenodeids=true,
        post_transform=d.choose((0, 0, 0, 0, 1, 2) if targets > 1 else (0, 0, 0, 2)),
        tree_roots=roots,
    )


@inputs(classical.TreeEnsemble)
def tree_inputs(d: Draw, op: classical.TreeEnsemble) -> tuple[Tensor]:
    """A feature or more; those that no node asks for, too."""
    shape = d.samples(), max(d.side(), 1 + max(op.nodes_featureids))
    return (d.tensor(shape, *FEATURES),)
