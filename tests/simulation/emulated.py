"""A machine that is emulated: threads are ranks and ports, sleeps are times, and sums are real.

    python -m tests.simulation.emulated times.json      # then: d5test fit times.json

It knows the model, and nothing of how it is simulated: a port takes what comes first, a rank waits
in earnest. Its times are the wall's, for machines that are too busy to measure an MPI on.
"""

import json
import queue
import sys
import threading
import time
from collections import defaultdict
from typing import Any

import numpy as np

from d5test.distributed.communicator import advance
from d5test.reference.collectives import ALLREDUCE, Recv, Send
from d5test.simulation.events import simulate
from d5test.simulation.machine import Machine

SLOW = Machine(latency=0.03, per_byte=0.04 / 2**20, addition=0.02 / 2**20, overhead=0.01)
SIZES = (2**10, 2**18, 2**20, 2**22)


class SlowSums(np.ndarray):
    """An array whose sums take the time of `SLOW`."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None) -> Any:
        plain = [np.asarray(x) for x in inputs]
        getattr(ufunc, method)(*plain, out=tuple(np.asarray(x) for x in out))
        time.sleep(out[0].nbytes * SLOW.addition)
        return out[0]


class Network:
    """Ports of `size` ranks: what is to leave, what is on its way, and what has come."""

    def __init__(self, size: int) -> None:
        self.leaving: list[Any] = [queue.Queue() for _ in range(size)]
        self.coming: list[Any] = [queue.Queue() for _ in range(size)]
        self.come: dict[tuple[int, int], Any] = defaultdict(queue.Queue)
        for rank in range(size):
            for port in (self.send, self.receive):
                threading.Thread(target=port, args=(rank,), daemon=True).start()

    def send(self, rank: int) -> None:
        """A port out, until it is given None."""
        while (message := self.leaving[rank].get()) is not None:
            to, data, sent = message
            start = time.perf_counter()
            self.coming[to].put((start + SLOW.latency, rank, data))
            _sleep_until(start + data.nbytes * SLOW.per_byte)
            sent.set()

    def receive(self, rank: int) -> None:
        """A port in, likewise."""
        while (message := self.coming[rank].get()) is not None:
            first_byte, source, data = message
            start = max(first_byte, time.perf_counter())
            _sleep_until(start + data.nbytes * SLOW.per_byte)
            self.come[source, rank].put(data)

    def run(self, schedule: Any, rank: int) -> None:
        """A rank's schedule to its end."""
        while (steps := advance(schedule, None)) is not None:
            sends = [step for step in steps if isinstance(step, Send)]
            all_sent = [threading.Event() for _ in sends]
            for step, sent in zip(sends, all_sent, strict=True):
                time.sleep(SLOW.overhead)
                self.leaving[rank].put((step.to, step.data.copy(), sent))
            for step in steps:
                if isinstance(step, Recv):
                    ready = time.perf_counter() + SLOW.overhead
                    data = self.come[step.source, rank].get()
                    _sleep_until(ready)
                    step.into[...] = data
            for sent in all_sent:
                sent.wait()


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.perf_counter()))


def seconds(algorithm: str, size: int, nbytes: int) -> float:
    """Of an allreduce, until the last rank is done; its sums are looked at."""
    arrays = [np.full(nbytes // 4, rank + 1, np.float32).view(SlowSums) for rank in range(size)]
    network, schedule = Network(size), ALLREDUCE[algorithm].schedule
    ranks = [
        threading.Thread(target=network.run, args=(schedule(rank, size, x), rank), daemon=True)
        for rank, x in enumerate(arrays)
    ]
    start = time.perf_counter()
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    taken = time.perf_counter() - start
    for port in (*network.leaving, *network.coming):
        port.put(None)
    assert all(np.all(np.asarray(x) == size * (size + 1) / 2) for x in arrays)
    return taken


def simulated(algorithm: str, size: int, nbytes: int) -> float:
    """The same by events."""
    return simulate(ALLREDUCE[algorithm].schedule, size, nbytes // 4, SLOW).seconds


def main(path: str) -> None:
    """Write times of 4 ranks for `d5test fit`; print those of 2, 4 and 8 beside simulated ones."""
    benchmarks, off = [], []
    for size in (2, 4, 8):
        for algorithm in ALLREDUCE:
            for nbytes in SIZES if size == 4 else (2**10, 2**20):
                taken = min(seconds(algorithm, size, nbytes) for _ in range(2))
                off.append(simulated(algorithm, size, nbytes) / taken - 1)
                print(
                    f"{algorithm} of {nbytes} bytes, {size} ranks: {taken:.3f} s, {off[-1]:+.1%}"
                )
                facts = {"algorithm": algorithm, "ranks": size, "contribution_bytes": nbytes}
                benchmarks.append(
                    {
                        "fullname": f"emulated[{algorithm}-{size}-{nbytes}]",
                        "stats": {"min": taken, "rounds": 1, "data": [taken]},
                        "extra_info": {"communication": facts},
                    }
                )
    of_four = [b for b in benchmarks if b["extra_info"]["communication"]["ranks"] == 4]  # type: ignore[index]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"benchmarks": of_four}, file)
    print(f"simulated is off what was taken by {min(off):+.1%} to {max(off):+.1%}")


if __name__ == "__main__":
    main(sys.argv[1])
