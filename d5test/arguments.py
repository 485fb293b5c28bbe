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


SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_DECIMAL = {f"{p}B": 1e3**i for i, p in enumerate(("", "K", "M", "G", "T"))}
BYTES = {**_DECIMAL, **{f"{p}iB": 1024.0**i for i, p in enumerate("KMGT", 1)}}
RATES = {
    **{f"{unit}/s": value for unit, value in BYTES.items()},
    **{f"{p}bit/s": 1e3**i / 8 for i, p in enumerate(("K", "M", "G", "T"), 1)},
}


def _quantity(text: str, units: dict[str, float], example: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?) ?([A-Za-z/]+)", text.strip())
    value = float(found[1]) * units.get(found[2], 0.0) if found else 0.0
    if not found or found[2] not in units or not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(
            f"expected {example}, in one of {', '.join(units)}, got {text!r}"
        )
    return value


def latency(text: str) -> float:
    """Seconds, with their unit.

    >>> latency("2ms")
    0.002
    """
    return _quantity(text, SECONDS, "a time such as 1.5us")


def nbytes(text: str) -> int:
    """Bytes, with their unit: a whole number of them.

    >>> nbytes("25MiB"), nbytes("1KB")
    (26214400, 1000)
    """
    value = _quantity(text, BYTES, "a size such as 25MiB")
    if value != int(value):
        raise argparse.ArgumentTypeError(f"expected whole bytes, got {text!r}")
    return int(value)


def contributions(text: str) -> tuple[int, ...]:
    """Bytes of contributions in float32, with commas between them.

    >>> contributions("8B,4KiB")
    (8, 4096)
    """
    sizes = tuple(dict.fromkeys(map(nbytes, text.split(","))))
    for size in sizes:
        if size % 4:
            raise argparse.ArgumentTypeError(f"{size}B is no whole number of float32")
    return sizes


def rate(text: str) -> float:
    """Bytes a second, with their unit.

    >>> rate("10GB/s"), rate("8Gbit/s")
    (10000000000.0, 1000000000.0)
    """
    return _quantity(text, RATES, "a rate such as 10GB/s")


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
