"""A page of very many benchmarks: small enough to be sent, whatever the number of rounds."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from d5test.compare.condensed import rounds_of
from d5test.compare.entry import Entry
from d5test.compare.reading import Run, read
from d5test.metric import TIME, Sample
from d5test.report import Report, page, verify
from d5test.report.content import ROUNDS
from tests.compare.files import benchmark, write

BENCHMARKS = 10_000
LARGEST = 20_000_000
"""Bytes of a page."""


@pytest.mark.nightly
def test_ten_thousand_benchmarks(tmp_path: Path) -> None:
    (run,) = read(str(write(tmp_path / "one.json", [benchmark("one", 1e-3)])), ROUNDS)
    draw = np.random.default_rng(2)
    report = Report([many(run, draw)], [many(run, draw)])
    text = page(report)
    assert LARGEST / 4 < len(text.encode()) < LARGEST
    assert verify(text).differences == ()


def many(run: Run, draw: np.random.Generator) -> Run:
    """A run of very many benchmarks, each with its own name, times and rounds."""
    (entry,) = run.entries.values()
    entries: dict[str, Entry] = {}
    for k in range(BENCHMARKS):
        name = f"operators/test_time.py::test_time[gemm-m{k}-n1-k1216-nn-forward-torch]"
        seconds = 1e-3 * (1 + draw.random(ROUNDS))
        time = Sample(TIME, (float(seconds.min()),))
        entries[name] = replace(
            entry,
            name=name,
            identity=f"{k:016x}",
            samples={**entry.samples, "time": time},
            detail=replace(entry.detail, count=1000, rounds=rounds_of(seconds)),
        )
    return replace(run, entries=entries)
