"""Mutants that are no faults: another formula for the same function, by mathematics.

A survivor that stands here is called equal; every other one is a fault that nothing found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.mutants import Mutant


@dataclass(frozen=True)
class Equal:
    """The mutants of `operators` in a function, whose change contains `words`."""

    operators: tuple[str, ...]
    function: str
    words: str
    reason: str

    def covers(self, mutant: Mutant) -> bool:
        """Whether this mutant is meant."""
        return (
            mutant.operator in self.operators
            and mutant.where.startswith(self.function)
            and self.words in mutant.change
        )


SHIFT = "exponentials may be shifted by any amount, as far as they do not overflow"
WINDOWED = (
    "Conv", "ConvTranspose", "CausalConvWithState", "AveragePool", "Col2Im", "LpPool", "MaxPool",
)  # fmt: skip
DETERMINANT = "each is the determinant; their bars differ"
CLIPPED = "indices are clipped to the side behind it"
TURNED = "indices turn back, too, and are clipped"

EQUAL: Sequence[Equal] = (
    Equal(("Attention",), "_scores", "biased.min(", SHIFT),
    Equal(("Attention",), "_scores", "largest) - largest", SHIFT),
    Equal(("Attention",), "_scores", ".max(-1, keepdims=True)", SHIFT),
    Equal(("Attention",), "_root", "-math.sqrt(scale)", "q and k both change their sign"),
    Equal(WINDOWED, "scatter", "(self.kernel) < math", "the roles tell how much memory is taken"),
    Equal(("Det",), "forward", "eliminated", DETERMINANT),
    Equal(("Det",), "forward", "EXPANDED", DETERMINANT),
    Equal(("Det",), "forward", "x.swapaxes(-1, -2) -> x", DETERMINANT),
    Equal(("GridSample",), "along", "n - 1 -> n", CLIPPED),
    Equal(("GridSample",), "along", "- np.arange", "the same elements, backwards, and one more"),
    Equal(("GridSample",), "reflected", "plain(place) - low ->", TURNED),
    Equal(("Resize",), "taps", "- np.arange", "the same elements, backwards"),
    Equal(("Resize",), "taps", "-> math.floor(", "the one element more reaches as far"),
    Equal(("Resize",), "taps", "-> np.ceil(place)", "the one element more reaches as far"),
    Equal(("RoiAlign",), "triangle", "return -np.maximum", "both factors change their sign"),
    Equal(("BlackmanWindow",), "output 0", "first element", "it is zero"),
    Equal(("TopK",), "forward", "[axis] + 1", "where it does not raise, all elements are equal"),
    Equal(("TreeEnsemble",), "forward", "tree_roots", "the same trees, added in another order"),
    Equal(("Conv",), "_padding", "o - 1", "no window reads the zeros behind the padding"),
)


def reason(mutant: Mutant) -> str:
    """Why this mutant is right; empty if it is wrong."""
    return next((equal.reason for equal in EQUAL if equal.covers(mutant)), "")
