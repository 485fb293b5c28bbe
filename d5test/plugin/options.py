"""What the command line accepts.

Requirements: an option is declared here and nowhere else; a value that cannot be read is one line
and exit status 4. Names (of backends, operators, checks) are resolved by `selection`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from d5test.arguments import contributions, count, duration, positive, share
from d5test.shards import shard

if TYPE_CHECKING:
    import pytest

EXAMPLES = 25
"""Cases that are drawn for each cell if the user does not say how many."""
ANSWER = 60.0
"""Seconds that a backend has for one request, unless the command line says otherwise."""
CONTRIBUTIONS = (8, 2**14, 2**20, 2**24)
"""Bytes of the allreduces that are timed."""
REPRODUCERS = Path(".d5test") / "reproducers"
GATED = Path(".d5test") / "gate"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare every option of the suites."""
    add = parser.getgroup(
        "d5test", "d5test: what is validated, against what, how thoroughly"
    ).addoption
    repeated: dict[str, Any] = {"action": "append", "default": []}
    names: dict[str, Any] = {**repeated, "metavar": "NAME[,NAME]"}
    files: dict[str, Any] = {**repeated, "metavar": "FILE"}
    add(
        "--backend",
        **names,
        help="framework under test: NAME, NAME@PYTHON, module:Name or ./file.py:Name",
    )
    add("--device", metavar="DEVICE", help="device of the backends: cpu, cuda:0, ...")
    add(
        "--operator",
        **names,
        help="only these operators: ONNX's name, module:Name or ./file.py:Name",
    )
    add("--optimizer", **names, help="only these optimizers: Adam, Momentum, centralised, ...")
    add(
        "--recipe",
        **files,
        help="train by this recipe: a file, or a name of suites/training/recipes",
    )
    add(
        "--dtype",
        **repeated,
        metavar="DTYPE[,DTYPE]",
        help="only these dtypes: float32, bfloat16, ...",
    )
    add("--check", **names, help="only these checks: forward, gradient, ...")
    add(
        "--examples",
        type=positive,
        metavar="N",
        help=f"cases drawn for each operator, dtype and check (default: {EXAMPLES}), or judged of "
        "those that are real (default: all); see --data-sets",
    )
    add(
        "--data-sets",
        type=positive,
        metavar="N",
        help="cases of each shape that is drawn: the same but for their data "
        "(default: 1, and 2 where the framework compiles each shape, so that 25 cases have 13 "
        "shapes)",
    )
    add(
        "--sizes",
        choices=("mixed", "small", "real", "large"),
        default="mixed",
        help="small and different sizes alone, or with them those at which kernels change: "
        "tied, at powers of two, as many channels as networks have, real problems scaled down "
        "(default: mixed); or every real problem once, at its full size; or calls beyond 2^31 "
        "bytes and beyond 2^31 elements, where memory allows",
    )
    add("--seed", type=int, default=0, metavar="N", help="draw other cases (default: 0)")
    add(
        "--network",
        **names,
        help="only these networks: ours, models of the onnx package, or ./model.onnx",
    )
    add(
        "--budget",
        type=duration,
        metavar="TIME",
        help="end within 90s, 2m or 1h, and say what was left out",
    )
    add(
        "--in-process",
        action="store_true",
        help="no worker process: for debuggers; a crash of the framework ends the run",
    )
    add(
        "--precision",
        choices=("tf32",),
        help="allow the multiplications of float32 this lower precision",
    )
    add("--threads", type=positive, metavar="N", help="threads of each backend")
    add(
        "--answer-within",
        type=duration,
        default=ANSWER,
        metavar="TIME",
        help=f"how long a backend has for one request, or it hangs (default: {ANSWER:g}s)",
    )
    add(
        "--native",
        **files,
        help="operators of a C++ file (see d5test native new): only these, unless --operator "
        "names others",
    )
    add(
        "--native-sanitize",
        action="store_true",
        help="run them under AddressSanitizer and UndefinedBehaviorSanitizer",
    )
    add("--known", **files, help="known failures (TOML), besides those that come with the suites")
    add("--record-known", metavar="FILE", help="write the faults of this run as known failures")
    add(
        "--reproducers",
        default=str(REPRODUCERS),
        metavar="DIR",
        help=f"where reproducers of faults are written (default: {REPRODUCERS})",
    )
    add(
        "--problems",
        choices=("smallest", "all"),
        default="smallest",
        help="problems that are timed: the smallest of each operator, or all",
    )
    add(
        "--comm",
        **names,
        help="communicators: virtual (the default), mpi (the default under mpirun), gloo, "
        "module:Name or ./file.py:Name",
    )
    add(
        "--compressor",
        **names,
        help="only these compressors of gradients: topk, powersgd, ..., module:Name or "
        "./file.py:Name",
    )
    add(
        "--collective",
        **names,
        help="only these collectives: broadcast, allgather, all_to_all, barrier, ...",
    )
    add(
        "--engine",
        **names,
        help="engines of parallel training, under mpirun or, some of them, on threads: torch-ddp "
        "(the default), torch-fsdp2, ..., all, module:Name or ./file.py:Name",
    )
    add(
        "--mesh",
        default="",
        metavar="AXIS[,AXIS]",
        help="the ranks of an engine by axes, the outermost first: dp2,tp2",
    )
    add(
        "--resume-mesh",
        default="",
        metavar="AXIS[,AXIS]",
        help="those of the engine that reads a checkpoint (default: all along its first axis)",
    )
    add(
        "--bytes",
        type=contributions,
        default=CONTRIBUTIONS,
        metavar="SIZE[,SIZE]",
        help="sizes of the allreduces that are timed (default: 8B,16KiB,1MiB,16MiB)",
    )
    add("--cold", action="store_true", help="empty the caches before each timed call")
    add(
        "--control",
        type=count,
        default=0,
        metavar="N",
        help="time in N more runs, so that one file tells what runs differ by (default: 0)",
    )
    add(
        "--shard",
        type=shard,
        metavar="I/N",
        help="only part I of N, by the tests' ids: for CI, and for job arrays",
    )
    add("--outcomes", metavar="FILE", help="write what came of each test, for `d5test merge`")
    add("--replay", metavar="FILE", help="report again what --outcomes wrote, and run nothing")
    add(
        "--on",
        metavar="CLUSTER",
        help="run the tests on workers of Dask: dask starts some here, tcp://HOST:8786 names a "
        "scheduler",
    )
    add("--workers", type=positive, metavar="N", help="how many --on=dask starts (cores)")
    add("--np", type=positive, metavar="N", help="run on N ranks: start mpirun, survive its crash")
    add(
        "--deadline",
        type=duration,
        metavar="TIME",
        help="under mpirun, how long a phase of a test may take (default: 12s)",
    )

    add = parser.getgroup("d5test gate", "d5test gate: two versions in one session").addoption
    add(
        "--gate-old",
        metavar="VERSION",
        help="the old version: a Python, an environment, or a backend",
    )
    add("--gate-new", metavar="VERSION", help="the new version, given in the same way")
    add(
        "--gate-effect",
        type=share,
        default=0.05,
        metavar="SHARE",
        help="the slowdown to detect (default: 0.05)",
    )
    add("--gate-budget", type=duration, metavar="TIME", help="end within 90s, 10m or 1h")
    add(
        "--gate-unsure",
        choices=("pass", "fail"),
        default="pass",
        help="whether unsure passes or fails",
    )
    add("--gate-accept", **files, help="accepted slowdowns (TOML)")
    add(
        "--gate-results",
        default=str(GATED),
        metavar="DIR",
        help=f"where the runs are written (default: {GATED})",
    )
    add("--gate-report", metavar="FILE", help="write the page of the comparison")
    add("--gate-self-test", action="store_true", help="measure the gate itself")
