"""The part of `d5test coverage` that tells which native functions are entered."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from d5test.arguments import Mistake, count, listed, positive
from d5test.case import FLOATS

if TYPE_CHECKING:
    from d5test.case import Case, Operator

DTYPES = "float32,bfloat16"
EXAMPLES = 25
"""Cases of each check, as many as the suites draw."""


def spread(cases: list[Case], most: int) -> list[Case]:
    """So many of them, evenly, if they are more."""
    return cases if len(cases) <= most else [cases[i * len(cases) // most] for i in range(most)]


def declare(group: argparse._ArgumentGroup) -> None:
    """Its own arguments."""
    group.add_argument(
        "--dtype",
        action="append",
        default=[],
        metavar="NAME[,NAME]",
        help=f"in these dtypes (default: {DTYPES})",
    )
    group.add_argument(
        "--seed", type=count, default=0, metavar="N", help="draw other cases (default: 0)"
    )
    group.add_argument(
        "--sizes", choices=("mixed", "small"), default="mixed", help="as of the suites"
    )
    group.add_argument(
        "--problems",
        type=positive,
        default=120,
        metavar="N",
        help="real problems of each operator at most (default: 120)",
    )
    group.add_argument(
        "--threads", type=positive, metavar="N", help="threads of the backend (its own choice)"
    )


def execute(options: argparse.Namespace) -> int:
    """Ask, print, write; its exit status."""
    from d5test.client.client import WorkerClient
    from d5test.client.messages import UnknownBackend
    from d5test.kernels import output
    from d5test.kernels.coverage import Wish, covered
    from d5test.kernels.probe import NoMeans
    from d5test.kernels.problems import real_cases
    from d5test.names import BadName, chosen
    from d5test.reference.operators import OPERATORS
    from d5test.timed import BROKEN

    def problems(operator: type[Operator]) -> list[Case]:
        return spread(list(real_cases(operator)), options.problems)

    if options.output and options.output.suffix not in output.SUFFIXES:
        raise Mistake(f"--output={options.output}: its name ends with none of .json, .md")
    try:
        operators = chosen("operator", listed([options.operator]), OPERATORS)
        dtypes = chosen("dtype", listed(options.dtype or [DTYPES]), dict.fromkeys(FLOATS))
    except BadName as error:
        raise Mistake(str(error)) from None
    if not options.operator:
        operators = {n: cls for n, cls in operators.items() if problems(cls)}
    cells = [(cls, dtype) for cls in operators.values() for dtype in dtypes]
    environment = {"OMP_WAIT_POLICY": "passive"}  # threads that spin take the traps' time
    wish = Wish(options.examples or EXAMPLES, options.seed, options.sizes, problems)
    try:
        with WorkerClient(
            options.backend, threads=options.threads, environment=environment
        ) as client:
            about = client.about
            print(output.heading(about, wish))
            told = covered(client, wish, cells, lambda cell: print(output.line(cell), flush=True))
    except (NoMeans, UnknownBackend, *BROKEN) as error:
        raise Mistake(" ".join(str(error).split())) from None
    print(output.names(told))
    if options.output:
        output.write(options.output, about, wish, told)
    return 0
