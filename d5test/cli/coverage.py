"""Which of ONNX's operators are judged; or what of a framework: public functions, native ones.

    d5test coverage
    d5test coverage --functions --backend=torch,jax
    d5test coverage --kernels --backend=torch --operator=Conv

Requirements: exit status 0: told; 1: a case was wrong; 2: the command line is wrong, or this
machine cannot tell, in one line.
"""

import argparse
from pathlib import Path

from d5test.arguments import Mistake, positive
from d5test.cli import functions, kernels, operators


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments: those that both kinds of coverage have, and those of kernels."""
    parser.add_argument(
        "--functions",
        action="store_true",
        help="function by function: the operator, whether it is the framework's own or composed, "
        "dtypes, and how many of a few cases were telling, in float32 where there is one; then "
        "public functions that are an operator's own by their names, and called by no row or form",
    )
    parser.add_argument(
        "--kernels",
        action="store_true",
        help="functions of the framework's native libraries: entered by drawn cases, by real "
        "problems, by both",
    )
    parser.add_argument(
        "--backend",
        default="",
        metavar="NAME[,NAME]",
        help="whose: of kernels one; of operators torch,tensorflow,jax if none is named",
    )
    parser.add_argument("--operator", default="", metavar="NAME[,NAME]", help="of these operators")
    parser.add_argument(
        "--examples",
        type=positive,
        metavar="N",
        help=f"cases of each function ({functions.EXAMPLES}), or of each check, for kernels "
        f"({kernels.EXAMPLES})",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write a page: .md; kernels also .json"
    )
    kernels.declare(parser.add_argument_group("with --kernels"))


def execute(options: argparse.Namespace) -> int:
    """Do what is asked for; its exit status."""
    if options.functions and options.kernels:
        raise Mistake("--functions and --kernels are two pages: ask for one of them")
    if not (options.functions or options.kernels):
        return operators.execute(options)
    if not options.backend:
        raise Mistake("say of which backend: --backend=torch")
    if "," in options.backend and options.kernels:
        raise Mistake(f"--backend={options.backend}: kernels are told of one backend at a time")
    return kernels.execute(options) if options.kernels else functions.execute(options)
