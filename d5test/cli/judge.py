"""Judge kernels written by machines: d5test judge candidate.py --like=problem.py

Requirements: exit status 0: each candidate is right; 1: one is wrong; 4: none is wrong, but of
one nothing could be told; 2: the command line or the problem is wrong, in one line. Candidates
run in processes of their own.
"""

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from d5test.arguments import Mistake
from d5test.console import Console

STATUS = {"right": 0, "wrong": 1, "untested": 4}
STYLES = {"right": "green", "wrong": "red", "untested": "yellow"}
DTYPES = ("float32", "bfloat16", "float16", "float64")


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "candidates",
        nargs="+",
        metavar="CANDIDATE",
        help="files with a class ModelNew, or folders",
    )
    parser.add_argument(
        "--like", required=True, metavar="PROBLEM",
        help="the file with Model, get_inputs() and get_init_inputs()",
    )  # fmt: skip
    parser.add_argument("--name", default="ModelNew", help="the candidate's class (ModelNew)")
    parser.add_argument("--dtype", default="float32", choices=DTYPES, help="(float32)")
    parser.add_argument("--device", default="cpu", help="of the candidates: cpu, cuda (cpu)")
    parser.add_argument(
        "--time", action="store_true", help="against the reference and torch.compile of it"
    )
    parser.add_argument("--json", metavar="FILE", help="write the verdicts to a file")


def execute(options: argparse.Namespace) -> int:
    """Judge each; the worst exit status."""
    try:
        from d5test.modules.judge import Judge
    except ImportError as error:
        raise Mistake(f"{error.name} is missing: pip install 'd5test[torch]'") from None
    from d5test import files

    problem = Path(options.like)
    candidates = list(_files(options.candidates, problem))
    if options.json and not os.access(Path(options.json).absolute().parent, os.W_OK):
        raise Mistake(f"--json={options.json}: its folder cannot be written to")
    verdicts: list[Any] = []
    with Judge(problem, options.dtype, options.device) as judge:
        console = Console(soft_wrap=True, highlight=False)
        if not judge.own:
            console.print(
                f"judged at {judge.large.problem.described()}: at its own sizes the reference "
                "takes too much in float64"
            )
        for k, path in enumerate(candidates, 1):
            verdict = judge.judge(path, options.name)
            if options.time and verdict.status == "right":
                judge.time(verdict, path, options.name)
            verdicts.append(verdict)
            if len(candidates) > 1:
                console.print(f"\\[{k}/{len(candidates)}] ", end="")
            for line in lines(verdict):
                console.print(line, markup=False, style=None)
    if options.json:
        content = [verdict.to_json() for verdict in verdicts]
        files.replace(options.json, json.dumps(content, indent=1, default=float) + "\n")
    if len(verdicts) > 1:
        counts = {word: sum(v.status == word for v in verdicts) for word in STATUS}
        console.print(", ".join(f"{n} {word}" for word, n in counts.items() if n))
    statuses = {verdict.status for verdict in verdicts}
    return next((STATUS[word] for word in ("wrong", "untested") if word in statuses), 0)


def _files(names: Sequence[str], problem: Path) -> Iterator[Path]:
    """The candidates. Raises `Mistake` for what is not there."""
    for name in names:
        path = Path(name)
        if path.is_dir():
            found = sorted(p for p in path.glob("*.py") if p.resolve() != problem.resolve())
            if not found:
                raise Mistake(f"{path}: there is no .py file in this folder")
            yield from found
        elif path.is_file():
            yield path
        else:
            raise Mistake(f"{path}: there is no such file")


def lines(verdict: Any) -> Iterator[str]:
    """What is printed of a verdict."""
    yield f"{verdict.candidate}: {_headline(verdict)}"
    for fault in verdict.faults[:1]:
        yield from fault.message.splitlines()
    further = Counter(fault.headline for fault in verdict.faults[1:])
    for headline, count in further.items():
        again = headline == verdict.faults[0].headline
        yield f"and {'the same' if again else headline} in {count} other call{'s' * (count > 1)}"
    for note in verdict.notes:
        yield f"  note: {note}"
    if verdict.times and verdict.status == "right":
        yield from _times(verdict.times)


def _headline(verdict: Any) -> str:
    if verdict.broken:
        return f"WRONG: {verdict.broken}"
    if verdict.status == "untested" and verdict.rarely:
        return (
            f"UNTESTED: only {verdict.rarely} could be judged: the error bars accept anything "
            "there, or zeros. Give a problem whose inputs keep what it computes finite, and no "
            "order in doubt"
        )
    if verdict.status == "untested":
        return (
            "UNTESTED: a wrong result would not have shown: the reference is constant, returns no "
            "real numbers, or its error bars are wide in this dtype"
        )
    if verdict.status == "wrong":
        return "WRONG"
    gradient = ", gradients too" if verdict.gradient else ", forward only"
    return f"RIGHT{gradient}: largest error / bar {verdict.ratio:.2g} in {verdict.judged} calls"


def _times(times: Any) -> Iterator[str]:
    from d5test.metric import TIME, measured

    yield f"  timed at      {times['sizes']}"
    for arm, (median, low, high) in times["seconds"].items():
        interval = f"{measured(low, TIME)} to {measured(high, TIME)}"
        line = f"  {arm:<14}{measured(median, TIME)} ({interval})"
        if arm in times["speedup"]:
            ratio, least, most = times["speedup"][arm]
            line += f"; the candidate is {ratio:.3g} times as fast ({least:.3g} to {most:.3g})"
        yield line
    for arm, why in times["missing"].items():
        yield f"  {arm:<14}not timed: {why}"
    if share := times["attained"].get("share of the roofline"):
        yield f"  {'roofline':<14}{share:.0%} of what this device reaches"
