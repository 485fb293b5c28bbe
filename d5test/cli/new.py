"""Write a file to start from: d5test new backend NAME, d5test new operator NAME

Requirements: what is written works as it stands; nothing is overwritten; the file of a backend is
not named like the framework, which it would hide from every script beside it.
"""

import argparse
import keyword
from pathlib import Path

from d5test.arguments import Mistake

KINDS = {"backend": "d5test_{}.py", "operator": "{}.py"}
"""What can be begun, and the name of its file."""


def declare(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("kind", choices=KINDS, help="what to write a template of")
    parser.add_argument("name", metavar="NAME", help="the name of its class: MyBackend")


def execute(options: argparse.Namespace) -> int:
    """Write the file into the working directory."""
    name = options.name
    if not name.isidentifier() or keyword.iskeyword(name):
        raise Mistake(f"{name!r} is not a valid class name; try MyBackend")
    path = Path(KINDS[options.kind].format(name.lower()))
    template = Path(__file__).with_name("templates") / f"{options.kind}.txt"
    text = template.read_text().replace("NAME", name).replace("FILE", path.name)
    try:
        with path.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise Mistake(f"{path} is there already, and is left as it is") from None
    print(f"{path}: see its first lines for how to run it")
    return 0
