"""Say what is there: backends, devices, threads, libraries, compilers, and what is missing.

Requirements: each thing is a line, printed as soon as it is known, and never cut; each backend is
asked in a process of its own, several at a time, and one that fails, or that does not answer in
time, is one line with the reason; what is missing comes with the command that installs it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from d5test.arguments import duration
from d5test.cli.machine import facts

LIMIT = 60.0
"""Seconds for a framework to be imported, and to answer."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--backend", metavar="NAME[,NAME]", help="only these backends")
    parser.add_argument(
        "--limit", type=duration, default=LIMIT, metavar="TIME", help="for each backend (60s)"
    )


def execute(options: argparse.Namespace) -> int:
    """Ask, and print."""
    from d5test.client import registry

    def tell(name: str, words: str) -> None:
        if not options.json:
            print(f"{name:{width}}  {words}", flush=True)

    names = options.backend.split(",") if options.backend else list(registry.installed())
    missing = {} if options.backend else registry.missing()
    width = max(map(len, [*names, *missing, "OMP_NUM_THREADS"]))
    machine, backends = {}, {}
    for name, value in facts():
        machine[name] = value
        tell(name, value)
    for name, found in asked(names, options.limit):
        backends[name] = found
        tell(name, in_words(found))
    for name, command in missing.items():
        tell(name, f"is not installed: {command}")
    if options.json:
        ordered = {name: backends[name] for name in names}
        print(json.dumps({"machine": machine, "backends": ordered, "missing": missing}, indent=1))
    failed = any("fails" in found for found in backends.values())
    return int(bool(options.backend) and failed)


def asked(names: Iterable[str], limit: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each backend says of itself, whoever answers first first."""
    with ThreadPoolExecutor(max(2, (os.cpu_count() or 1) // 2)) as pool:
        begun = {pool.submit(backend, name, limit): name for name in names}
        for done in as_completed(begun):
            yield begun[done], done.result()


def backend(name: str, limit: float = LIMIT) -> dict[str, Any]:
    """What a backend says of itself, or why it cannot."""
    from d5test.backends.base import Unsupported
    from d5test.client.client import (
        BackendFailed,
        Crashed,
        Hung,
        Raised,
        UnknownBackend,
        WorkerClient,
    )

    try:
        with WorkerClient(name, timeout=limit, importing=limit) as client:
            about = client.about
            devices = client.invoke("d5test.worker.facts:devices")
    except Hung:
        return {"fails": f"no answer within {limit:g} s: is the machine busy? --limit=5m waits"}
    except (BackendFailed, Crashed, Raised, UnknownBackend, Unsupported) as error:
        return {"fails": " ".join(str(error).split())}
    dtypes = dict.fromkeys(d for row in about.rows.values() for d in row.dtypes)
    return {
        "version": about.version,
        "mode": about.mode,
        "device": about.device_name,
        "devices": list(devices),
        "operators": len(about.rows),
        "dtypes": list(dtypes),
        "flushes": [dtype for dtype, flushes in about.flushes.items() if flushes],
        "threads": about.threads,
        "python": about.python,
        "packages": dict(about.packages),
    }


def in_words(found: dict[str, Any]) -> str:
    """What a backend said, in a line."""
    if "fails" in found:
        return f"cannot be used: {found['fails']}"
    words = [
        f"{found['version']} on {' '.join(found['devices'])}",
        f"{found['operators']} operators in {' '.join(found['dtypes']) or 'no dtype'}",
        f"{found['threads']} threads",
    ]
    if found["flushes"]:
        words.append(f"flushes subnormal numbers of {' '.join(found['flushes'])}")
    return ", ".join(words)
