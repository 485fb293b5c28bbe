"""Which algorithm wins where, over ranks and bytes: a map in one SVG file, without a script.

Requirements: the file says with which machine it was made; each cell says its winner and time in
words too, for who cannot tell the colours apart (they are those of Okabe and Ito 2008).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from d5test.metric import RESIDENT, TIME, measured
from d5test.simulation.gradients import ITEMSIZE
from d5test.simulation.machine import Machine
from d5test.simulation.rounds import seconds

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
SIZES = tuple(4**k for k in range(1, 16))
"""Bytes of a contribution: 4 B to 1 GiB."""
CELL_WIDTH, CELL_HEIGHT, LEFT, TOP = 40, 22, 70, 50


@dataclass(frozen=True)
class Map:
    """Seconds by algorithm: (ranks, sizes)."""

    ranks: Sequence[int]
    sizes: Sequence[int]
    times: Mapping[str, np.ndarray]

    def winner(self, i: int, j: int) -> tuple[str, float]:
        """The fastest with the i-th number of ranks and the j-th size; of equals, the first."""
        name = min(self.times, key=lambda name: self.times[name][i, j])
        return name, float(self.times[name][i, j])


def powers(most: int) -> list[int]:
    """Numbers of ranks: the powers of two from 2 up to `most`."""
    return [1 << k for k in range(1, most.bit_length())]


def surveyed(
    algorithms: Sequence[str], ranks: Sequence[int], machine: Machine, sizes: Sequence[int] = SIZES
) -> Map:
    """All of these algorithms, simulated."""
    items = [size // ITEMSIZE for size in sizes]
    times = {name: np.array([seconds(name, p, items, machine) for p in ranks])
             for name in algorithms}  # fmt: skip
    return Map(ranks, sizes, times)


def svg(winners: Map, title: str) -> str:
    """The file's text. `title` is what was assumed."""
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(winners.times)}
    columns, rows = len(winners.ranks), len(winners.sizes)
    right, bottom = LEFT + columns * CELL_WIDTH, TOP + rows * CELL_HEIGHT
    parts = [_text(LEFT, 20, "The fastest allreduce"), _text(LEFT, 38, title, 11)]
    for j, size in enumerate(winners.sizes):
        y = bottom - (j + 1) * CELL_HEIGHT
        parts.append(_text(LEFT - 6, y + 15, measured(size, RESIDENT), 11, "end"))
        for i, ranks in enumerate(winners.ranks):
            name, best = winners.winner(i, j)
            words = f"{name}: {measured(best, TIME)} for {measured(size, RESIDENT)}, {ranks} ranks"
            parts.append(
                f'<rect x="{LEFT + i * CELL_WIDTH}" y="{y}" width="{CELL_WIDTH}" '
                f'height="{CELL_HEIGHT}" fill="{colours[name]}" stroke="#fff">'
                f"<title>{escape(words)}</title></rect>"
            )
    for i, ranks in enumerate(winners.ranks):
        x = LEFT + i * CELL_WIDTH + CELL_WIDTH // 2
        parts.append(_text(x, bottom + 16, str(ranks), 11, "middle"))
    parts.append(_text((LEFT + right) // 2, bottom + 34, "ranks", 11, "middle"))
    for k, (name, colour) in enumerate(colours.items()):
        y = TOP + k * 20
        parts.append(f'<rect x="{right + 14}" y="{y}" width="14" height="14" fill="{colour}"/>')
        parts.append(_text(right + 34, y + 12, name, 12))
    width, height = right + 190, max(bottom + 46, TOP + 20 * len(colours) + 10)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif">\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _text(x: int, y: int, words: str, size: int = 14, anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}">{escape(words)}</text>'
    )
