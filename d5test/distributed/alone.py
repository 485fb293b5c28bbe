"""What a schedule takes by itself, with no message sent: the interpreter's time.

On two cores it is up to three fifths of an allreduce of 8 bytes, and differs by schedule. A model
of messages and sums knows nothing of it, so it is measured beside each time.
"""

from collections import deque
from time import perf_counter

import numpy as np

from d5test.distributed.communicator import Program, advance
from d5test.reference.collectives import ANY, Recv, Schedule

TRIALS, LOOPS = 10, 20
"""The fastest of so many times of so many runs counts."""


def run_alone(schedule: Schedule, rank: int, size: int) -> int:
    """Run this rank's schedule as if what it waits for were there; how often it went on.

    What it receives is what its rooms hold.
    """
    others = deque(other for other in range(size) if other != rank)
    heard, count = None, 0
    while (steps := advance(schedule, heard)) is not None:
        count += 1
        for step in steps:
            if isinstance(step, Recv):
                heard = others[0] if step.source == ANY else step.source
                others.rotate(-1)
    return count


def own_seconds(program: Program, rank: int, size: int) -> float:
    """Seconds of this rank's schedule on an element for each rank, in float32."""
    x = np.zeros(size, np.float32)
    fastest = float("inf")
    for _ in range(TRIALS):
        start = perf_counter()
        for _ in range(LOOPS):
            run_alone(program(rank, size, x), rank, size)
        fastest = min(fastest, perf_counter() - start)
    return fastest / LOOPS
