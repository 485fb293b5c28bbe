"""Hypothesis around one check on one cell (operator x dtype) of one backend. Without pytest.

`Exploration` draws cases and finds the smallest fault of each kind, `Tally` counts what came of
them. The suites' plugin and the front door explore alike.
"""

from d5test.exploration.explore import Exploration, Undrawable, seed_of, shortage
from d5test.exploration.tally import OUTCOMES, Tally

__all__ = ["OUTCOMES", "Exploration", "Tally", "Undrawable", "seed_of", "shortage"]
