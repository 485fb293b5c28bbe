"""The mark of a reproducer: that it is one, and the interpreter that showed the fault.

Requirements: read without running the file, which may be anything. Files of earlier versions name
no interpreter.
"""

import ast
import platform
from pathlib import Path
from typing import Any

from d5test.names import plural

STATUSES = "Status 1: still there, 0: gone, 2: it cannot be tried."
"""A sentence of every reproducer's docstring, and of nothing else."""
INTERPRETER = "# d5test: the fault was seen under "


class NoReproducer(Exception):
    """The file is none; the text says why."""


def head(interpreter: str) -> str:
    """The first line of a reproducer."""
    return f"{INTERPRETER}{interpreter}"


def docstring(message: str, about: Any, needs: str = "") -> str:
    """The docstring of a reproducer: the fault, where it was seen, and how to run the file."""
    packages = ", ".join(f"{name} {version}" for name, version in about.packages.items())
    words = [
        message.strip(),
        f"Seen with {packages}; Python {about.python}, {plural(about.threads, 'thread')}, "
        f"{about.device_name}, {platform.system()} {platform.machine()}.\n"
        f"Run it: python THIS_FILE. {STATUSES}\n{needs}".rstrip(),
    ]
    text = "\n\n".join(words).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{text}\n"""'


def interpreter_of(path: Path) -> str | None:
    """The interpreter that showed the fault, if the file names it. Raises `NoReproducer`."""
    try:
        text = path.read_text("utf-8")
        described = ast.get_docstring(ast.parse(text)) or ""
    except SyntaxError as error:
        raise NoReproducer(f"it is cut or changed: {error.msg}, line {error.lineno}") from None
    except (OSError, ValueError) as error:
        raise NoReproducer(f"it cannot be read: {error}") from None
    except (RecursionError, MemoryError):
        raise NoReproducer("it is nested too deep") from None
    if STATUSES not in described:
        raise NoReproducer("d5test did not write it")
    first = text.partition("\n")[0]
    return first.removeprefix(INTERPRETER) if first.startswith(INTERPRETER) else None
