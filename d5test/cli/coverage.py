"""What of a framework the suites reach: d5test coverage --kernels --backend=torch --operator=Conv

Requirements: exit status 0: told; 2: the command line is wrong, or this machine cannot tell, in
one line.
"""

import argparse
from pathlib import Path

from d5test.arguments import Mistake, positive
from d5test.cli import kernels


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments: those that all kinds of coverage have, and each kind's own."""
    parser.add_argument(
        "--kernels",
        action="store_true",
        help="functions of the framework's native libraries: entered by drawn cases, by real "
        "problems, by both",
    )
    parser.add_argument("--backend", default="", metavar="NAME", help="of this backend")
    parser.add_argument("--operator", default="", metavar="NAME[,NAME]", help="of these operators")
    parser.add_argument("--examples", type=positive, metavar="N", help="cases of each check (25)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write it to FILE too: .json, or .md"
    )
    kernels.declare(parser.add_argument_group("--kernels"))


def execute(options: argparse.Namespace) -> int:
    """Do what is asked for; its exit status."""
    if options.kernels:
        return kernels.execute(options)
    raise Mistake("say what is to be covered: --kernels")
