"""Rows of known failures as a file: what `reading` reads.

Requirements: a file that was there is replaced as a whole, or left as it was.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def table(row: Mapping[str, Any]) -> str:
    """A `[[known]]` table. A value is a text, a number, a date, or a list or table of such."""
    lines = (f"{name} = {_value(value)}" for name, value in row.items())
    return "\n".join(["[[known]]", *lines, ""])


def replace_text(path: Path, text: str) -> None:
    """Write a file whose name has the old text until it has the new one.

    Raises OSError, and leaves the file that was there.
    """
    temporary = path.with_name(f".{path.name[:40]}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, _present(value)))}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{name} = {_value(v)}' for name, v in value.items())} }}"
    if isinstance(value, str):
        # TOML's basic strings are JSON's, but for one control character
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def _present(values: Iterable[Any]) -> Iterable[Any]:
    return (value for value in values if value is not None)
