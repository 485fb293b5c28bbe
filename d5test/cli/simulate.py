"""Simulate allreduces on many ranks: d5test simulate --ranks=65536 --alpha=1us --beta=10GB/s

Requirements: exit status 0: simulated; 2: the command line or a file is wrong, in one line. What
was assumed and what was measured is said.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from d5test.arguments import Mistake, latency, listed, nbytes, positive, rate

if TYPE_CHECKING:
    from d5test.simulation.machine import Links, Machine

SUFFIXES = (".svg", ".json")
MOST = 1 << 20
"""Ranks that are simulated at most: arrays of them, of 15 sizes, for each."""
MESSAGES = 2_000_000
"""Messages that are simulated one by one at most. Each takes 10 to 30 us of a core: a minute."""


def ranks(text: str) -> list[int]:
    """Numbers of ranks, with commas between them."""
    numbers = [positive(part.strip()) for part in text.split(",")]
    if max(numbers) > MOST:
        raise argparse.ArgumentTypeError(f"expected at most {MOST} ranks, got {max(numbers)}")
    return list(dict.fromkeys(numbers))


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "--ranks", type=ranks, default=[65536], metavar="N[,N]", help="(default: 65536)"
    )
    parser.add_argument(
        "--algorithm",
        action="append",
        default=[],
        metavar="NAME[,NAME]",
        help="allreduces (default: all)",
    )
    work = parser.add_mutually_exclusive_group()
    work.add_argument(
        "--model", metavar="NAME", help="sum the gradients of this network (default: resnet50)"
    )
    work.add_argument("--bytes", type=nbytes, metavar="SIZE", help="or one array of float32")
    parser.add_argument(
        "--bucket",
        type=nbytes,
        metavar="SIZE",
        help="sum gradients together until they have so many bytes (default: 25MiB)",
    )
    parser.add_argument(
        "--times", metavar="FILE", help="fit the machine to these times, as `d5test fit` does"
    )
    parser.add_argument("--alpha", type=latency, metavar="TIME", help="of an empty message: 1us")
    parser.add_argument("--beta", type=rate, metavar="RATE", help="bandwidth of a rank: 10GB/s")
    parser.add_argument(
        "--gamma", type=rate, metavar="RATE", help="bytes added a second (default: no time)"
    )
    parser.add_argument(
        "--overhead",
        type=latency,
        metavar="TIME",
        help="the part of alpha that keeps a core busy; so does a receive (default: none)",
    )
    parser.add_argument(
        "--gap", type=latency, metavar="TIME", help="between messages of a port (default: none)"
    )
    parser.add_argument(
        "--node", type=positive, metavar="N", help="so many ranks share a link, with --uplink"
    )
    parser.add_argument("--uplink", type=rate, metavar="RATE", help="bandwidth of that link")
    parser.add_argument(
        "-o",
        "--output",
        action="append",
        default=[],
        metavar="PATH",
        help="write the picture (.svg) or the numbers (.json)",
    )


def execute(options: argparse.Namespace) -> int:
    """Simulate, print, write; its exit status."""
    from d5test.files import replace
    from d5test.names import BadName, chosen
    from d5test.reference.collectives import ALLREDUCE
    from d5test.simulation import gradients

    for path in options.output:
        if Path(path).suffix not in SUFFIXES:
            raise Mistake(f"--output={path}: its name ends with none of {', '.join(SUFFIXES)}")
    if options.bytes and options.bytes % gradients.ITEMSIZE:
        raise Mistake(f"--bytes={options.bytes}B is no whole number of float32")
    try:
        names = list(chosen("algorithm", listed(options.algorithm), ALLREDUCE))
        name = options.model or "resnet50"
        whole = [options.bytes // gradients.ITEMSIZE] if options.bytes else gradients.model(name)
    except BadName as error:
        raise Mistake(str(error)) from None
    machine, lines = _machine(options)
    links = _links(options, lines)
    items = gradients.buckets(whole, options.bucket or gradients.BUCKET)
    what = "an array" if options.bytes else f"the gradients of {name}"
    lines.append(
        f"{what}: {sum(items) * gradients.ITEMSIZE} bytes of float32 in {len(items)} allreduces, "
        "one after another, no computation beside them"
    )
    print("\n".join(lines))
    rows = [_row(n, p, items, machine, links) for p in options.ranks for n in names]
    _show(rows)
    for path in options.output:
        if path.endswith(".json"):
            record = {
                "machine": dataclasses.asdict(machine),
                "links": links and vars(links),
                "items": items,
                "assumed": lines,
                "rows": rows,
            }
            replace(path, json.dumps(record, indent=1) + "\n")
        else:
            replace(path, _picture(names, max(options.ranks), machine, links, lines[0]))
        print(path)
    return 0


def _machine(options: argparse.Namespace) -> tuple[Machine, list[str]]:
    """The machine, and lines that say where it comes from."""
    from d5test.cli.fit import described, fitted
    from d5test.metric import TIME, measured
    from d5test.simulation.fit import NAMES
    from d5test.simulation.machine import Machine

    given = [name for name in NAMES if getattr(options, name) is not None]
    overhead, gap = options.overhead or 0.0, options.gap or 0.0
    if options.times:
        if given:
            raise Mistake(f"--{given[0]} and --times: the times say it")
        _, fit = fitted(options.times)
        lines = [f"fitted to {options.times}", *described(fit)]
        return dataclasses.replace(fit.machine, gap=gap), lines
    if options.alpha is None or options.beta is None:
        raise Mistake("give --alpha=1us --beta=10GB/s, or measured times: --times=times.json")
    if overhead > options.alpha:
        raise Mistake("--overhead is a part of alpha, and is more than it")
    gamma = 1 / options.gamma if options.gamma else 0.0
    adding = f"{options.gamma:.4g} B/s" if options.gamma else "no time for additions"
    lines = [
        f"given, not measured: alpha {measured(options.alpha, TIME)}, "
        f"beta {options.beta:.4g} B/s, gamma {adding}, "
        f"overhead {measured(overhead, TIME)}, gap {measured(gap, TIME)}"
    ]
    return Machine(options.alpha - overhead, 1 / options.beta, gamma, overhead, gap), lines


def _links(options: argparse.Namespace, lines: list[str]) -> Links | None:
    from d5test.simulation.machine import Links

    if bool(options.node) != bool(options.uplink):
        raise Mistake("--node and --uplink are given together")
    if not options.node:
        return None
    lines.append(f"nodes of {options.node} ranks share a link of {options.uplink:.4g} B/s")
    return Links(options.node, 1 / options.uplink)


def _row(
    name: str, size: int, items: list[int], machine: Machine, links: Links | None
) -> dict[str, Any]:
    """One algorithm on so many ranks: seconds, messages and bytes of all ranks."""
    from d5test.reference.collectives import ALLREDUCE
    from d5test.simulation.events import simulate
    from d5test.simulation.gradients import ITEMSIZE
    from d5test.simulation.rounds import seconds

    algorithm = ALLREDUCE[name]
    messages = algorithm.messages(size) * len(items)
    if links is None:
        total = float(seconds(name, size, items, machine).sum())
    elif messages > MESSAGES:
        raise Mistake(
            f"--node: shared links are simulated message by message, and {name} on {size} ranks "
            f"has {messages} (at most {MESSAGES}): take fewer ranks or another algorithm"
        )
    else:
        program = algorithm.schedule
        total = sum(simulate(program, size, n, machine, links=links).seconds for n in items)
    sent = ITEMSIZE * sum(algorithm.items(size, n) for n in items)
    return {"algorithm": name, "ranks": size, "seconds": total, "messages": messages,
            "bytes": sent}  # fmt: skip


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from d5test.console import Console
    from d5test.metric import TIME, measured

    table = Table(box=None)
    for column in ("algorithm", "ranks", "time", "", "messages", "bytes sent by all"):
        table.add_column(column, justify="left" if column in ("algorithm", "") else "right")
    several = len({row["algorithm"] for row in rows}) > 1
    for row in rows:
        best = several and row["seconds"] == min(
            r["seconds"] for r in rows if r["ranks"] == row["ranks"]
        )
        table.add_row(row["algorithm"], str(row["ranks"]), measured(row["seconds"], TIME),
                      "fastest" if best else "", str(row["messages"]),
                      str(row["bytes"]))  # fmt: skip
    Console(highlight=False).print(table)


def _picture(
    names: list[str], most: int, machine: Machine, links: Links | None, title: str
) -> str:
    from d5test.simulation.picture import powers, surveyed, svg

    if links is not None:
        raise Mistake("--output: there is no picture with shared links")
    if most < 2:
        raise Mistake("--output: a picture begins at 2 ranks")
    return svg(surveyed(names, powers(most), machine), title)
