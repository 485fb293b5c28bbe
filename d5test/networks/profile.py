"""Where a network's time goes: node by node, and how much of it is in no node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Profile:
    """Seconds of each node alone, and of the whole inference, one value a pass.

    A node alone is waited for, the whole only at its end: where a device works on while the next
    node is prepared, the overhead can be negative.
    """

    nodes: Mapping[str, tuple[float, ...]]
    whole: tuple[float, ...]

    @property
    def overhead(self) -> float:
        """FrameworkOverhead: 1 - (sum of the nodes) / (whole), the median of the passes."""
        sums = np.sum(list(self.nodes.values()), axis=0)
        return float(np.median(1 - sums / np.array(self.whole)))

    @property
    def medians(self) -> dict[str, float]:
        """The median seconds of each node."""
        return {name: float(np.median(seconds)) for name, seconds in self.nodes.items()}
