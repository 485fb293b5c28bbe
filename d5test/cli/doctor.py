"""Say what is there: backends, devices, threads, libraries, compilers, and what is missing.

Requirements: each backend is asked in a process of its own, and one that fails is one line with
the reason; what is missing comes with the command that installs it.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from d5test.cli.machine import machine

COLUMNS = ("version", "devices", "operators", "dtypes", "flushes", "threads")
"""What the table shows of a backend; `--json` has it all."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--backend", metavar="NAME[,NAME]", help="only these backends")


def execute(options: argparse.Namespace) -> int:
    """Ask, and print."""
    from d5test.client import registry

    names = options.backend.split(",") if options.backend else list(registry.installed())
    found = {
        "machine": machine(),
        "backends": {name: backend(name) for name in names},
        "missing": {} if options.backend else registry.missing(),
    }
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        show(found)
    failed = options.backend and any("fails" in facts for facts in found["backends"].values())
    return int(bool(failed))


def backend(name: str) -> dict[str, Any]:
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
        with WorkerClient(name) as client:
            about = client.about
            devices = client.invoke("d5test.worker.facts:devices")
    except (BackendFailed, Crashed, Hung, Raised, UnknownBackend, Unsupported) as error:
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


def show(found: dict[str, Any]) -> None:
    """As tables."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from d5test.console import Console

    console = Console()
    here = Table(box=box.SIMPLE, show_header=False)
    for name, value in found["machine"].items():
        here.add_row(name, escape(str(value)))
    console.print(here)
    table = Table("backend", *COLUMNS, box=box.SIMPLE)
    for name, facts in found["backends"].items():
        if "fails" not in facts:
            table.add_row(name, *(escape(_words(facts[column])) for column in COLUMNS))
    if table.row_count:
        console.print(table)
    for name, facts in found["backends"].items():
        if "fails" in facts:
            console.print(f"[red]{escape(name)}[/] cannot be used: {escape(facts['fails'])}")
    for name, command in found["missing"].items():
        console.print(f"{escape(name)} is not installed: {escape(command)}")


def _words(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(v).replace("float", "f") for v in value) or "-"
    return str(value)
