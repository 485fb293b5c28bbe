"""Whole runs of two versions, in turns: how what is timed on many ranks is gated.

Requirements: the Python of each version has d5test, whose suite it runs: that is checked before
anything is measured; neither version is always the first, so that a load that lasts meets both;
two runs a side are the least that can tell a slowdown from noise; each run leaves its file and its
output; a run that timed nothing ends the gate with the reason.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from d5test.arguments import Mistake
from d5test.gate.versions import NEW, OLD

RUNS, LEAST = 3, 2
"""Runs of each version, and how many there are however short the budget is."""
NEEDED = ("d5test", "mpi4py", "pytest_mpi")
"""Packages that the environment of a version has to have."""
JUDGED = (0, 1)
"""Statuses of pytest after which there are times: all was right, or some were wrong."""


def turns() -> Iterator[tuple[str, str]]:
    """Who is first: the old version, then the new one, and so on."""
    while True:
        yield OLD, NEW
        yield NEW, OLD


@dataclass(frozen=True)
class Alternating:
    """Runs of the suite's times, `d5test run distributed/test_time.py` under each version.

    pythons  by side
    words    arguments of pytest
    folder   of the runs' files: `old-1.json`, `new-1.json`, and their outputs
    budget   seconds; None: `RUNS` of each
    """

    pythons: Mapping[str, str]
    words: Sequence[str]
    folder: Path
    budget: float | None = None

    def measured(self) -> Mapping[str, Sequence[Path]]:
        """The files of each side. Raises `Mistake`."""
        for side in self.pythons:
            self._check(side)
        self.folder.mkdir(parents=True, exist_ok=True)
        begun, longest = time.monotonic(), 0.0
        files: dict[str, list[Path]] = {OLD: [], NEW: []}
        for number, sides in enumerate(islice(turns(), RUNS), 1):
            late = time.monotonic() + longest
            if number > LEAST and self.budget is not None and late > begun + self.budget:
                break
            started = time.monotonic()
            for side in sides:
                files[side].append(self._run(side, number))
            longest = max(longest, time.monotonic() - started)
        return files

    def _check(self, side: str) -> None:
        """Whether the suite can run there."""
        code = f"import {', '.join(NEEDED)}"
        ended = subprocess.run(
            [self.pythons[side], "-c", code], capture_output=True, text=True, check=False
        )
        if ended.returncode:
            reason = (ended.stderr.strip().splitlines() or ["it ended without a word"])[-1]
            raise Mistake(
                f"the {side} version, {self.pythons[side]}: {reason}: "
                f"{self.pythons[side]} -m pip install 'd5test[mpi]'"
            )

    def _run(self, side: str, number: int) -> Path:
        file, log = (self.folder / f"{side}-{number}.{kind}" for kind in ("json", "log"))
        file.unlink(missing_ok=True)
        command = [self.pythons[side], "-m", "d5test", "run", "distributed/test_time.py"]
        started = time.monotonic()
        with log.open("w") as output:
            ended = subprocess.run(
                [*command, *self.words, f"--benchmark-json={file.absolute()}"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )  # fmt: skip
        if ended.returncode not in JUDGED or not file.exists():
            raise Mistake(
                f"run {number} of the {side} version timed nothing (status {ended.returncode}): "
                f"{_reason(log)}; see {log}"
            )
        print(f"{side}, run {number}: {time.monotonic() - started:.0f} s", flush=True)
        return file


def _reason(log: Path) -> str:
    """The line of an output that says most: the first error, or else the last line."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = (line for line in lines if "error" in line.lower() or "No module named" in line)
    return next(errors, lines[-1].strip("= ") if lines else "it printed nothing")
