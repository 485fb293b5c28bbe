"""What a machine is in the model.

Alexandrov, Ionescu, Schauser and Scheiman, LogGP (SPAA 1995), with the time of additions as in
Thakur, Rabenseifner and Gropp 2005, section 3. Hockney's alpha and beta are the case without an
overhead and a gap. What a byte takes may depend on the size of its message, as in the
parameterised LogP of Kielmann, Bal and Verstoep (IPDPS workshops 2000).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Bend:
    """From `nbytes` of a message or a sum on, each further byte takes other times."""

    nbytes: int
    per_byte: float
    addition: float


@dataclass(frozen=True)
class Machine:
    """Times in seconds, of bytes in seconds per byte. All ranks and all links are alike.

    A rank sends at o + wait + k G: its core is busy for `overhead`, then its port sends k bytes,
    once it has sent those before. The first byte is there `latency` later. Ports take messages one
    after another, in the order of the schedule, no two within `gap`; both directions go on at
    once. A receive costs the core of its rank another `overhead`, from when it turns to it: this
    overlaps with its waiting, so the later of the two decides (LogGP begins it on arrival). LogGP
    counts k - 1 bytes where this counts k: an empty message has none.

    latency   L
    per_byte  G, the reciprocal of the bandwidth of a port
    addition  gamma: of one byte that is added to another
    overhead  o, at either end
    gap       g, from the start of a message to that of the next at one port
    bends     where another protocol or a cache begins, by size; `per_byte` and `addition` are
              those of the first bytes
    """

    latency: float
    per_byte: float
    addition: float = 0.0
    overhead: float = 0.0
    gap: float = 0.0
    bends: tuple[Bend, ...] = ()

    def __post_init__(self) -> None:
        for part in (self, *self.bends):
            for name, value in vars(part).items():
                if name != "bends" and not 0 <= value < float("inf"):
                    raise ValueError(f"{name} is {value}, not a time from 0 on")
        sizes = [bend.nbytes for bend in self.bends]
        if sizes != sorted(set(sizes)):
            raise ValueError(f"the sizes of bends do not rise: {sizes}")

    @property
    def alpha(self) -> float:
        """Seconds of an empty message to a rank that waits for it: o + L."""
        return self.overhead + self.latency

    def wire(self, nbytes: Any) -> Any:
        """Seconds for so many bytes, or an array of such, to pass a port."""
        return self._bent(nbytes, "per_byte")

    def added(self, nbytes: Any) -> Any:
        """Seconds for so many bytes to be added to others."""
        return self._bent(nbytes, "addition")

    def _bent(self, nbytes: Any, name: str) -> Any:
        slope = getattr(self, name)
        seconds = nbytes * slope
        for bend in self.bends:
            beyond = np.maximum(nbytes - bend.nbytes, 0)
            seconds, slope = seconds + (getattr(bend, name) - slope) * beyond, getattr(bend, name)
        return seconds

    def busy(self, nbytes: int) -> float:
        """Seconds that a message keeps a port."""
        return max(self.gap, float(self.wire(nbytes)))


@dataclass(frozen=True)
class Links:
    """Nodes of `ranks` ranks each. One link, of `per_byte` seconds a byte, leads out of a node.

    Its messages go one after another, as they come; a link puts them aside, and no port waits.
    """

    ranks: int
    per_byte: float
