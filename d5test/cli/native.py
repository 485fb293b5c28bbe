"""Begin an operator in C++, for every framework: d5test native new NAME

Requirements: what is written passes as it stands; nothing is overwritten.
"""

import argparse
from keyword import iskeyword
from pathlib import Path

from d5test.arguments import Mistake
from d5test.files import replace

TEMPLATES = Path(__file__).parents[1] / "native" / "templates"
SUFFIXES = (".cpp", ".py")


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    new = actions.add_parser("new", help="write an operator and its reference, which pass")
    new.set_defaults(command="native new")
    new.add_argument("name", metavar="NAME", help="the name of its class: IPow")


def execute(options: argparse.Namespace) -> int:
    """Write the files into the working directory."""
    name = options.name
    # no word of C++ begins with a capital, and of Python's three do
    if not (name.isidentifier() and name.isascii() and name[0].isupper()) or iskeyword(name):
        raise Mistake(f"{name!r} is not the name of a class; give one as IPow")
    paths = [Path(f"{name.lower()}{suffix}") for suffix in SUFFIXES]
    for path in paths:
        if path.exists():
            raise Mistake(f"{path} is there already, and is left as it is")
    for path in paths:
        text = (TEMPLATES / f"operator{path.suffix}.txt").read_text()
        replace(path, text.replace("NAME", name).replace("FILE", path.stem))
    source = paths[0]
    print(f"{source}, {paths[1]}: d5test run operators --native={source} --backend=numpy")
    return 0
