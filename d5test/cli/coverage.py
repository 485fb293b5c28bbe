"""What of a framework the suites reach: d5test coverage --kernels --backend=torch --operator=Conv

Requirements: exit status 0: told; 2: the command line is wrong, or this machine cannot tell, in
one line.
"""

import argparse

from d5test.arguments import Mistake
from d5test.cli import kernels


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument(
        "--kernels",
        action="store_true",
        help="functions of the framework's native libraries: entered by drawn cases, by real "
        "problems, by both",
    )
    kernels.declare(parser)


def execute(options: argparse.Namespace) -> int:
    """Do what is asked for; its exit status."""
    if options.kernels:
        return kernels.execute(options)
    raise Mistake("say what is to be covered: --kernels")
