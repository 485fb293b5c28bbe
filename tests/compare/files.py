"""Benchmark files as the suites write them, with times that are asked for."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from d5test.record import Record

ROUNDS = 7
BACKEND = {
    "name": "torch", "framework": "torch", "version": "2.0", "device": "cpu",
    "device_name": "cpu (AVX2)", "mode": "eager", "threads": 1, "python": "3.11.7",
    "packages": {"torch": "2.0"},
}  # fmt: skip
RIGHT = {"right": True, "ratio": 0.25, "share": 1.0, "arithmetic": ""}


def record(least: float, **changed: Any) -> dict[str, Any]:
    """A record of rounds of which the fastest takes `least` seconds a call."""
    rounds = [least * (1 + 0.1 * k) for k in range(ROUNDS)]
    usual = {
        "problem": "gemm-small", "source": "here", "operator": "Gemm",
        "attributes": {"alpha": 1.0}, "shapes": [[3, 5], [5, 7]], "dtype": "float32",
        "direction": "forward", "backend": BACKEND, "seconds": rounds, "cpu": rounds,
        "preempted": [0] * ROUNDS, "loops": 10, "multiplications": 105, "input_bytes": 200,
        "output_bytes": 84, "judgement": RIGHT, "cold": False,
        "memory": {"resident": 10**8, "device": None},
        "environment": {"load": [0.5, 0.5, 0.5]},
    }  # fmt: skip
    return Record(**{**usual, **changed}).to_json()


def plain(name: str, least: float, **extra: Any) -> dict[str, Any]:
    """A benchmark of a project that has never heard of d5test."""
    data = [least * (1 + 0.1 * k) for k in range(ROUNDS)]
    stats = {"min": least, "rounds": ROUNDS, "total": sum(data), "data": data}
    return {"fullname": name, "name": name, "stats": stats, "extra_info": extra}


def benchmark(name: str, least: float, **changed: Any) -> dict[str, Any]:
    """A benchmark with its record."""
    return plain(name, least, d5test=record(least, **changed))


def write(
    path: Path,
    benchmarks: Sequence[Any],
    untimed: Mapping[str, str] | None = None,
    **machine: Any,
) -> Path:
    """A file; `machine`: of its `machine_info`."""
    content = {
        "machine_info": {"node": "here", **machine},
        "commit_info": {},
        "benchmarks": list(benchmarks),
        "datetime": path.stem,
        "d5test": {
            "schema": 1,
            "outcomes": {"passed": len(benchmarks), "failed": len(untimed or {})},
            "untimed": dict(untimed or {}),
        },
    }
    path.write_text(json.dumps(content, indent=4))
    return path


def sides(
    folder: Path,
    runs: int = 3,
    noise: float = 0.003,
    count: int = 5,
    slower: Mapping[int, float] | None = None,
    new: Mapping[int, Mapping[str, Any]] | None = None,
) -> list[str]:
    """OLD and NEW: `runs` files each of `count` benchmarks, with so much noise between runs.

    `slower`: factors, by the number of the benchmark; `new`: fields of the new version's records.
    """
    draw = np.random.default_rng(11)
    for side in ("old", "new"):
        for k in range(runs):
            found = []
            for b in range(count):
                least = 1e-3 * (b + 1) * np.exp(noise * draw.standard_normal())
                if side == "new":
                    least *= (slower or {}).get(b, 1)
                changed = (new or {}).get(b, {}) if side == "new" else {}
                shapes = [[3, 5], [5, 7 + b]]
                found.append(benchmark(name(b), float(least), **{"shapes": shapes, **changed}))
            write(folder / f"{side}{k}.json", found)
    return [str(folder / f"{side}*.json") for side in ("old", "new")]


def name(b: int) -> str:
    """The full name of a benchmark."""
    return f"operators/test_time.py::test_time[gemm-{b}-forward-torch]"
