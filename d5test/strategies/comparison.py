"""Cases of comparisons: numbers that a lower precision does not tell apart, equal ones, and zeros
of either sign, which are equal."""

from d5test.case import Tensor
from d5test.reference.operators import comparison
from d5test.strategies.draw import Draw, Regime
from d5test.strategies.registry import inputs

ZEROS: Regime = ("often", 0.0, -0.0)
NEIGHBOURS: Regime = ("crowded", 8)
"""Of which some are equal in a small tensor, too."""
COMPARISONS: tuple[type[comparison.Comparison], ...] = (
    comparison.Equal, comparison.Greater, comparison.GreaterOrEqual, comparison.Less,
    comparison.LessOrEqual,
)  # fmt: skip


@inputs(*COMPARISONS)
def comparison_inputs(d: Draw, op: comparison.Comparison) -> tuple[Tensor, Tensor]:
    """Both of one kind, either of which may broadcast; or one of them twice."""
    regimes = (NEIGHBOURS, NEIGHBOURS, "crowded", NEIGHBOURS, "ties", "normal", ZEROS)
    shape, regime = d.shape(0), d.choose(regimes)
    a = d.tensor(shape if d.flag() else d.broadcastable(shape), regime)
    if d.integer(0, 5) == 5:
        return a, d.again(a, 0)
    return a, d.tensor(shape if d.flag() else d.broadcastable(shape), regime)
