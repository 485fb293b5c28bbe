"""What an argument of a command line may be, for `d5test` and for pytest's options alike.

Requirements: what cannot be read is one line that says what was expected.
"""

import argparse
import re
from collections.abc import Iterable


class Mistake(Exception):
    """A command line, or a file that it names, that cannot be used; why, in one line."""


UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def positive(text: str) -> int:
    """A whole number above zero."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)


def count(text: str) -> int:
    """A whole number."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on, got {text!r}")
    return int(text)


def duration(text: str) -> float:
    """Seconds.

    >>> duration("2m"), duration("1h30m")
    (120.0, 5400.0)
    """
    number = r"\d+(?:\.\d+)?"
    parts = re.findall(rf"({number})\s*([smh]?)", text)
    seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
    if not re.fullmatch(rf"\s*(?:{number}\s*[smh]\s*)*(?:{number})?\s*", text) or not seconds:
        raise argparse.ArgumentTypeError(f"expected a time such as 90s, 2m or 1h30m, got {text!r}")
    return seconds


def listed(values: Iterable[str]) -> tuple[str, ...]:
    """The names of an option that is repeated, or given with commas, or both; each once."""
    names = (name.strip() for value in values for name in value.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def share(text: str) -> float:
    """A part of 1: `5%` or `0.05`."""
    number = text.strip().removesuffix("%")
    try:
        part = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        part = 0.0
    if not 0 < part < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share: say 5% or 0.05")
    return part
